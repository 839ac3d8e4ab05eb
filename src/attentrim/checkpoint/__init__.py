"""Trimmed checkpoints: the plan in a model's config (`stored`), and what loads them like stock ones (`loader`)."""

from __future__ import annotations
