"""Families of models: from a configuration to what its layers consist of."""

from __future__ import annotations

from functools import lru_cache

from hyscale_model.families.anatomy import Anatomy, ParameterCount, count_parameters
from hyscale_model.families.deepseek_v4 import v4_anatomy
from hyscale_model.families.grouped import gpt_anatomy, grouped_anatomy
from hyscale_model.families.latent import latent_anatomy
from hyscale_model.families.qwen4 import qwen4_anatomy
from hyscale_model.families.tokens import TokenFlops, keys_at, token_flops
from hyscale_model.scenario.models import DeepseekV4, Gpt, Llama, Model, Qwen3Moe, Qwen4

CACHED = 256

__all__ = ["Anatomy", "ParameterCount", "TokenFlops", "anatomy", "count_parameters", "keys_at", "token_flops"]


# By the identity of a model, which is held: a hash of its two dozen fields would be the price of every look.
_known: dict[int, tuple[Model, Anatomy]] = {}


def anatomy(model: Model) -> Anatomy:
    """What the model consists of; the same object for equal models."""
    found = _known.get(id(model))
    if found is None:
        if len(_known) >= CACHED:
            _known.clear()
        found = _known[id(model)] = model, _anatomy(model)
    return found[1]


@lru_cache(maxsize=CACHED)
def _anatomy(model: Model) -> Anatomy:
    if isinstance(model, DeepseekV4):
        return v4_anatomy(model)
    if isinstance(model, Qwen4):
        return qwen4_anatomy(model)
    if isinstance(model, (Llama, Qwen3Moe)):
        return grouped_anatomy(model)
    if isinstance(model, Gpt):
        return gpt_anatomy(model)
    return latent_anatomy(model)
