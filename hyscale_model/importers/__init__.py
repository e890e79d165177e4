"""Reads what others write: Hugging Face configurations and Megatron-LM arguments."""

from __future__ import annotations

from hyscale_model.importers.huggingface import model_fields, read_config

__all__ = ["model_fields", "read_config"]
