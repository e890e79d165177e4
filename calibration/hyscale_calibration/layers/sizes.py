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


# Columns with a rotary position where a configuration of the catalogue does not say: a quarter of Qwen3.8's heads, and
# an eighth of DeepSeek-V4's (transformers 5.24, models/qwen4_exp and models/deepseek_v4).
ROPE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CsaSizes:
    """Compressed sparse attention: DeepSeek-V4.

    Attributes:
        hidden: width of the residual stream; heads: of queries; width: of a head, and of a key, which is its value.
        q_rank: width of low-rank queries; rope: columns with a position.
        groups, group_rank: in which heads are projected back, and what each is projected to.
        window: tokens attended as they are.
    """

    hidden: int
    heads: int
    width: int
    q_rank: int
    rope: int
    groups: int
    group_rank: int
    window: int
    index: IndexSizes

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> CsaSizes:
        """From the fields of a configuration of type ``deepseek_v4``."""
        return cls(
            hidden=values["hidden_size"],
            heads=values["num_attention_heads"],
            width=values["head_dim"],
            q_rank=values["q_lora_rank"],
            rope=ROPE,
            groups=values["o_groups"],
            group_rank=values["o_lora_rank"],
            window=values["sliding_window"],
            index=IndexSizes(
                heads=values["index_n_heads"],
                width=values["index_head_dim"],
                topk=values["index_topk"],
                # The other compressed layers attend to all of their entries.
                ratio=min(ratio for ratio in values["compress_ratios"] if ratio),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QsaSizes:
    """Sparse attention over blocks of tokens: Qwen3.8.

    Attributes:
        hidden: width of the residual stream; heads: of queries; groups: of keys and values; width: of each.
        rope: columns with a position.
    """

    hidden: int
    heads: int
    groups: int
    width: int
    rope: int
    index: IndexSizes

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> QsaSizes:
        """From the fields of a configuration of type ``qwen4_exp``."""
        ratio = values["indexer_compress_ratio"]
        return cls(
            hidden=values["hidden_size"],
            heads=values["num_attention_heads"],
            groups=values["num_key_value_heads"],
            width=values["head_dim"],
            rope=ROPE,
            index=IndexSizes(
                heads=values["indexer_n_heads"],
                width=values["indexer_head_dim"],
                topk=values["indexer_budget"] // ratio,
                ratio=ratio,
            ),
        )
