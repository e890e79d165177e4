"""Reads what others write: Hugging Face configurations."""

from __future__ import annotations

from hyscale_model.importers.huggingface import model_fields

__all__ = ["model_fields"]
