"""Runs of `attentrim train`: `pipeline.run` makes the directory of a run from its settings, `reader` reads it again.

Importing this package, or its `reader` and `settings`, imports no torch.
"""

from __future__ import annotations
