"""Dimensions of layers, from configurations in the catalogue's names, which are Hugging Face's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSizes:
    """An indexer: ``heads`` query heads of ``width`` for one key head, ``topk`` entries of ``ratio`` tokens."""

    heads: int
    width: int
    topk: int
    ratio: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DsaSizes:
    """DeepSeek sparse attention over absorbed latents: DeepSeek-V3.2, GLM-5.

    Attributes:
        hidden: width of the residual stream; heads: of queries.
        q_rank, kv_rank: widths of the low-rank queries, and of the latent that all heads share.
        nope, rope: parts of a query without and with position; value: of what a head returns.
    """

    hidden: int
    heads: int
    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int
    index: IndexSizes

    @property
    def latent(self) -> int:
        """Width of a key: the latent and its part with position."""
        return self.kv_rank + self.rope

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> DsaSizes:
        """From the fields of a configuration of type ``glm_moe_dsa`` or ``deepseek_v32``."""
        return cls(
            hidden=values["hidden_size"],
            heads=values["num_attention_heads"],
            q_rank=values["q_lora_rank"],
            kv_rank=values["kv_lora_rank"],
            nope=values["qk_nope_head_dim"],
            rope=values["qk_rope_head_dim"],
            value=values["v_head_dim"],
            index=IndexSizes(heads=values["index_n_heads"], width=values["index_head_dim"], topk=values["index_topk"]),
        )
