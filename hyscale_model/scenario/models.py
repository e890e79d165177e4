"""Model configurations under their Hugging Face ``config.json`` names, one class a family.

Only fields that cost or memory depend on; ``hyscale_model.families`` says what a layer of each family consists of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from hyscale_model.scenario.base import STRICT, Count, CountOrZero, Flag, Positive, Probability, Text, assumed, whole

# No model has more than a few hundred layers, and each one is looked at.
LayerCount: TypeAlias = Annotated[int, BeforeValidator(whole), Field(ge=1, le=2000)]

NONE_STATED = "none stated; only compared, never computed with"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """What every family has."""

    __pydantic_config__ = STRICT

    name: Text
    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: LayerCount
    num_attention_heads: Count
    tie_word_embeddings: Flag = assumed(False, "large checkpoints keep an output head of their own")
    num_nextn_predict_layers: CountOrZero = assumed(0, "not trained with multi-token prediction unless it is stated")
    published_parameters: Positive | None = assumed(None, NONE_STATED)
    published_active_parameters: Positive | None = assumed(None, NONE_STATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentModel(Transformer):
    """Multi-head latent attention and mixture of experts: DeepSeek-V3, and with an indexer V3.2 and GLM-5."""

    intermediate_size: Count
    moe_intermediate_size: Count
    first_k_dense_replace: CountOrZero
    q_lora_rank: Count
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count
    n_routed_experts: Count
    num_experts_per_tok: Count
    n_shared_experts: CountOrZero
    n_group: Count = assumed(1, "a token may choose among all experts")
    topk_group: Count = assumed(1, "a token may choose among all experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepseekV3(LatentModel):
    """Dense latent attention."""

    model_type: Literal["deepseek_v3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseLatentModel(LatentModel):
    """DeepSeek sparse attention: an indexer selects keys. GLM-5.2 shares one indexer over several layers."""

    model_type: Literal["glm_moe_dsa", "deepseek_v32"]
    index_n_heads: Count
    index_head_dim: Count
    index_topk: Count
    index_topk_freq: Count = assumed(1, "every layer has an indexer of its own")
    index_skip_topk_offset: CountOrZero = assumed(0, "no further layers at the start select for themselves")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepseekV4(Transformer):
    """Compressed sparse attention (CSA), heavily compressed attention (HCA) and sliding windows, by layer."""

    model_type: Literal["deepseek_v4"]
    head_dim: Count
    q_lora_rank: Count
    o_groups: Count
    o_lora_rank: Count
    sliding_window: Count
    compress_ratios: Annotated[tuple[CountOrZero, ...], Field(min_length=1)]
    index_n_heads: Count
    index_head_dim: Count
    index_topk: Count
    moe_intermediate_size: Count
    n_routed_experts: Count
    num_experts_per_tok: Count
    n_shared_experts: CountOrZero
    hc_mult: Count = assumed(1, "no hyper-connections")

    @property
    def layer_ratios(self) -> tuple[int, ...]:
        """One compression ratio a layer, without the entry of the multi-token prediction layer some lists end with."""
        return self.compress_ratios[: self.num_hidden_layers]


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramTable:
    """A table of n-gram embeddings added in some layers: rows of a few values, looked up by hashed n-grams.

    ``layer_ids`` count layers from 1, as ``ple_layer_ids`` of the released configurations do.
    """

    __pydantic_config__ = STRICT

    layer_ids: tuple[CountOrZero, ...]
    ngram_size: Count
    heads_per_ngram: Count
    embed_dim: Count
    rows: Count
    row_width: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen4(Transformer):
    """Gated DeltaNet layers with a Qwen sparse attention (QSA) layer in every ``full_attention_interval``."""

    model_type: Literal["qwen4_exp"]
    full_attention_interval: Count
    num_key_value_heads: Count
    head_dim: Count
    attn_output_gate: Flag = assumed(True, "released configurations gate the attention output")
    linear_num_key_heads: Count
    linear_num_value_heads: Count
    linear_key_head_dim: Count
    linear_value_head_dim: Count
    linear_conv_kernel_dim: Count
    num_experts: Count
    num_experts_per_tok: Count
    moe_intermediate_size: Count
    shared_expert_intermediate_size: CountOrZero
    indexer_n_heads: Count
    indexer_head_dim: Count
    indexer_budget: Count
    indexer_compress_ratio: Count
    hc_count: Count = assumed(1, "one residual stream")
    hc_lowrank: CountOrZero = assumed(0, "no gated residual streams")
    ple: NgramTable | None = assumed(None, "no n-gram table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Moe(Transformer):
    """Grouped-query attention and mixture of experts in every layer."""

    model_type: Literal["qwen3_moe"]
    num_key_value_heads: Count
    head_dim: Count
    num_experts: Count
    num_experts_per_tok: Count
    moe_intermediate_size: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama(Transformer):
    """Grouped-query attention and a dense SwiGLU feed-forward."""

    model_type: Literal["llama", "qwen3"]
    num_key_value_heads: Count
    intermediate_size: Count
    head_dim: Count | None = assumed(None, "hidden_size over num_attention_heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpt(Transformer):
    """Multi-head attention, GELU feed-forward, learned positions, biases: GPT as Megatron-LM trains it."""

    model_type: Literal["gpt"]
    intermediate_size: Count
    max_position_embeddings: Count
    resid_pdrop: Probability = assumed(0.1, "GPT trains with dropout of 0.1 (Hugging Face GPT2Config)")


Model: TypeAlias = Annotated[
    SparseLatentModel | DeepseekV3 | DeepseekV4 | Qwen4 | Qwen3Moe | Llama | Gpt, Field(discriminator="model_type")
]

# model_type -> kinds of attention layers, where the type alone decides.
LAYER_KINDS: Mapping[str, tuple[str, ...]] = {
    "glm_moe_dsa": ("dsa",),
    "deepseek_v32": ("dsa",),
    "deepseek_v3": ("mla",),
    "qwen4_exp": ("gdn", "qsa"),
    "qwen3_moe": ("gqa",),
    "llama": ("gqa",),
    "qwen3": ("gqa",),
    "gpt": ("mha",),
}

# Up to this ratio so many keys remain that an indexer selects; beyond it a layer attends to all of them.
SELECTING_RATIO = 16


def compressed_kind(ratio: int) -> Literal["swa", "csa", "hca"]:
    """The kind of a DeepSeek-V4 layer: 0 keeps only its window (swa), 4 selects (csa), 128 attends to all (hca)."""
    if ratio == 0:
        return "swa"
    return "csa" if ratio <= SELECTING_RATIO else "hca"


def layer_kinds(model: Model) -> tuple[str, ...]:
    """The kinds of attention layers a model has, each once, in the order of its layers."""
    if isinstance(model, DeepseekV4):
        return tuple(dict.fromkeys(compressed_kind(ratio) for ratio in model.layer_ratios))
    if isinstance(model, Qwen4) and model.full_attention_interval == 1:
        return ("qsa",)
    return LAYER_KINDS[model.model_type]
