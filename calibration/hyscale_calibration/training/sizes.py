"""Models and tasks that are trained, by name, in the field names of Hugging Face configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyscale_calibration.training.session import Stage
from hyscale_calibration.training.task import Recall


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A model with its task.

    Attributes:
        model: fields of a configuration of type ``glm_moe_dsa`` whose layers are all dense.
        stages: documents of ``index_topk`` tokens first, of which attention reads all, then longer ones: as models
            with sparse attention are trained, short before long.
    """

    model: Mapping[str, Any]
    task: Recall
    stages: tuple[Stage, ...]


def _setting(
    tokens: int, keys: int, values: int, row: int, stages: tuple[tuple[int, int], ...], **model: Any
) -> Setting:
    task = Recall(tokens=tokens, keys=keys, values=values, near=model["index_topk"], row=row)
    return Setting(
        model={**model, "vocab_size": task.vocabulary, "first_k_dense_replace": model["num_hidden_layers"]},
        task=task,
        stages=tuple(Stage(steps=steps, document=document) for steps, document in stages),
    )


SETTINGS: Mapping[str, Setting] = {
    # Attention as in GLM-5.1 (64 heads over latents of 576 and 512, 32 index heads of 128), narrow beside it.
    "small": _setting(
        32_768,
        128,
        124,
        4,
        ((50, 512), (10, 2048), (10, 8192), (230, 32_768)),
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=2,
        num_attention_heads=64,
        q_lora_rank=512,
        kv_lora_rank=512,
        qk_nope_head_dim=64,
        qk_rope_head_dim=64,
        v_head_dim=64,
        index_n_heads=32,
        index_head_dim=128,
        index_topk=512,
    ),
    # For Triton's interpreter.
    "tiny": _setting(
        32,
        4,
        3,
        1,
        ((1, 8), (3, 32)),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=16,
        qk_rope_head_dim=16,
        v_head_dim=16,
        index_n_heads=2,
        index_head_dim=32,
        index_topk=8,
    ),
}
