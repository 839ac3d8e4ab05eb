"""`python -m attentrim` is the command `attentrim`."""

import sys

from .cli import main

sys.exit(main())
