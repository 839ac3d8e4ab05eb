"""Settings that every test shares."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import hypothesis
import pytest
import torch
import transformers

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

hypothesis.settings.register_profile("attentrim", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("attentrim")


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield
