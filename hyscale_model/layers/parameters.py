"""Parameter counts of a DSA + mixture-of-experts transformer, by part."""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.arrays import Number
from hyscale_model.scenario.models import SparseLatentModel as Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters of one layer's parts and of the whole model (multi-token prediction left out).

    Attributes:
        attention: MLA projections of one layer; ``indexer``: index projections of one layer.
        expert: one routed or shared expert; ``router``: gate with its correction bias.
        dense_ffn: feed-forward of a dense layer; ``norms``: the two RMSNorms around a layer's blocks.
        embedding: input embedding; ``head``: output head with the final norm.
    """

    attention: Number
    indexer: Number
    expert: Number
    router: Number
    dense_ffn: Number
    norms: Number
    embedding: Number
    head: Number
    total: Number
    active: Number

    @classmethod
    def of(cls, model: Model) -> Parameters:
        """Count from the shapes of the configuration."""
        hidden = model.hidden_size
        key = model.qk_nope_head_dim + model.qk_rope_head_dim
        attention = (
            hidden * model.q_lora_rank
            + model.q_lora_rank
            + model.q_lora_rank * model.num_attention_heads * key
            + hidden * (model.kv_lora_rank + model.qk_rope_head_dim)
            + model.kv_lora_rank
            + model.kv_lora_rank * model.num_attention_heads * (model.qk_nope_head_dim + model.v_head_dim)
            + model.num_attention_heads * model.v_head_dim * hidden
        )
        indexer = (
            model.q_lora_rank * model.index_n_heads * model.index_head_dim
            + hidden * model.index_head_dim
            + 2 * model.index_head_dim
            + hidden * model.index_n_heads
        )
        expert = 3 * hidden * model.moe_intermediate_size
        router = (hidden + 1) * model.n_routed_experts
        dense_ffn = 3 * hidden * model.intermediate_size
        norms = 2 * hidden
        embedding = model.vocab_size * hidden
        head = hidden if model.tie_word_embeddings else embedding + hidden
        moe_layers = model.num_hidden_layers - model.first_k_dense_replace
        shared = model.num_hidden_layers * (attention + indexer + norms) + model.first_k_dense_replace * dense_ffn
        outside = embedding + head
        total = shared + moe_layers * (router + (model.n_routed_experts + model.n_shared_experts) * expert) + outside
        active = (
            shared + moe_layers * (router + (model.num_experts_per_tok + model.n_shared_experts) * expert) + outside
        )
        return cls(
            attention=attention,
            indexer=indexer,
            expert=expert,
            router=router,
            dense_ffn=dense_ffn,
            norms=norms,
            embedding=embedding,
            head=head,
            total=total,
            active=active,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFlops:
    """Forward FLOP of one token that sees ``position`` keys."""

    weights: Number
    scores: Number
    sparse_attention: Number

    @property
    def total(self) -> Number:
        """Sum of the three."""
        return self.weights + self.scores + self.sparse_attention

    @classmethod
    def of(cls, model: Model, position: Number, active_parameters: Number | None = None) -> TokenFlops:
        """2 per active weight, 2 H D per scored key, 2 heads (2 r + rope) per attended key and layer.

        ``active_parameters`` defaults to the counted ones without the input embedding, which is looked up.
        """
        counted = Parameters.of(model)
        weights = counted.active - counted.embedding if active_parameters is None else active_parameters
        layers = model.num_hidden_layers
        attended = min(model.index_topk, position)
        return cls(
            weights=2 * weights,
            scores=2 * layers * model.index_n_heads * model.index_head_dim * position,
            sparse_attention=2
            * layers
            * model.num_attention_heads
            * (2 * model.kv_lora_rank + model.qk_rope_head_dim)
            * attended,
        )


def training_flops_per_token(model: Model, keys: Number, selected: Number) -> Number:
    """FLOP that training one token needs, without recomputation: the numerator of model FLOP utilisation.

    6 per weight (4 per index weight, whose inputs are detached), scores of the mean causal context once, the
    kept scores' backward twice, the attention core three times (Megatron-Bridge's accounting for DSA).

    Args:
        model: the model.
        keys: keys of a sequence; a token sees (keys + 1) / 2 on average.
        selected: mean keys attended.
    """
    counted = Parameters.of(model)
    layers = model.num_hidden_layers
    index_weights = layers * counted.indexer
    score = 2 * layers * model.index_n_heads * model.index_head_dim
    core = 2 * layers * model.num_attention_heads * (2 * model.kv_lora_rank + model.qk_rope_head_dim)
    weights = 6 * (counted.active - counted.embedding - index_weights) + 4 * index_weights
    return weights + score * (keys + 1) / 2 + 2 * score * selected + 3 * core * selected
