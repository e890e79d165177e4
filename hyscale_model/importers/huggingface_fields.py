"""What the fields of a ``config.json`` mean here: names of families, of fields, and what costs nothing.

Names and defaults are those of the configuration classes of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# model_type of the file -> model_type of the family that computes the same.
ALIASES: Mapping[str, str] = {
    "mistral": "llama",
    "qwen2": "llama",
    "mixtral": "qwen3_moe",
    "qwen3_next": "qwen4_exp",
    "qwen4_exp_text": "qwen4_exp",
    "deepseek_v2": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "gpt2": "gpt",
}

# model_type of the file -> name there -> name in the schema.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "gpt2": {
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_positions": "max_position_embeddings",
        "n_inner": "intermediate_size",
    },
    "mixtral": {"num_local_experts": "num_experts", "intermediate_size": "moe_intermediate_size"},
}

# model_type of the file -> field of the schema -> what transformers takes where the file does not say.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {"tie_word_embeddings": True},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "qwen3": {"head_dim": 128},
    "deepseek_v4": {"hc_mult": 4, "sliding_window": 128},
    "qwen4_exp": {"hc_count": 4, "hc_lowrank": 320, "head_dim": 256, "linear_conv_kernel_dim": 4},
    "glm_moe_dsa": {"first_k_dense_replace": 3},
    "deepseek_v32": {"first_k_dense_replace": 3},
}

# Fields that change neither operations nor bytes enough to be modelled, for every family.
QUIET = frozenset(
    [
        "_attn_implementation",
        "_name_or_path",
        "add_bos_token",
        "add_eos_token",
        "architectures",
        "attention_dropout",
        "attn_pdrop",
        "auto_map",
        "aux_loss_alpha",
        "begin_suppress_tokens",
        "bos_token",
        "bos_token_id",
        "chunk_size_feed_forward",
        "classifier_dropout",
        "compress_rope_theta",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "dtype",
        "embd_pdrop",
        "eos_token_id",
        "ep_size",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "hc_eps",
        "hc_sinkhorn_iters",
        "hidden_dropout",
        "id2label",
        "image_token_id",
        "initializer_range",
        "is_decoder",
        "is_encoder_decoder",
        "keys_to_ignore_at_inference",
        "label2id",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "length_penalty",
        "max_length",
        "max_window_layers",
        "min_length",
        "model_max_length",
        "moe_router_dtype",
        "mrope_section",
        "n_ctx",
        "norm_topk_prob",
        "num_beams",
        "num_hash_layers",
        "num_return_sequences",
        "original_max_position_embeddings",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "pad_token",
        "pad_token_id",
        "partial_rotary_factor",
        "prefix",
        "pretraining_tp",
        "problem_type",
        "reorder_and_upcast_attn",
        "resid_pdrop",
        "return_dict",
        "rms_norm_eps",
        "rope_interleave",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "rotary_dim",
        "routed_scaling_factor",
        "router_aux_loss_coef",
        "router_bias",
        "router_jitter_noise",
        "router_z_loss_coef",
        "scale_attn_by_inverse_layer_idx",
        "scale_attn_weights",
        "scoring_func",
        "seed",
        "sep_token_id",
        "seq_aux",
        "split_ngram_parts",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
        "swiglu_limit",
        "task_specific_params",
        "temperature",
        "tf_legacy_loss",
        "tokenizer_class",
        "top_k",
        "top_p",
        "topk_method",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "transformers.js_config",
        "typical_p",
        "unk_token_id",
        "use_bfloat16",
        "use_cache",
        "use_return_dict",
        "video_token_id",
        "vision_end_token_id",
        "vision_start_token_id",
        "indexer_rope_interleave",
        "indexer_kv_heads",
        "make_ngram_vocab_size_divisible_by",
        "output_gate_type",
    ]
)

# Fields a family has by definition or computes from others.
QUIET_IN: Mapping[str, frozenset[str]] = {
    "deepseek_v3": frozenset({"num_key_value_heads", "head_dim", "qk_head_dim", "max_position_embeddings"}),
    "glm_moe_dsa": frozenset({"num_key_value_heads", "head_dim", "qk_head_dim", "max_position_embeddings"}),
    "deepseek_v32": frozenset({"num_key_value_heads", "head_dim", "qk_head_dim", "max_position_embeddings"}),
    # One key and value head shared by all heads; rotation covers the last part of it.
    "deepseek_v4": frozenset({"num_key_value_heads", "qk_rope_head_dim", "max_position_embeddings"}),
    "qwen4_exp": frozenset({"max_position_embeddings", "intermediate_size"}),
    # Every layer is of the mixture-of-experts kind; the dense width is not used.
    "qwen3_moe": frozenset({"max_position_embeddings", "intermediate_size"}),
    "llama": frozenset({"max_position_embeddings"}),
    "qwen3": frozenset({"max_position_embeddings"}),
    "gpt": frozenset(),
}

# Values that say nothing: a switch that is off, a list that is empty.
NEUTRAL: tuple[Any, ...] = (None, False, 0, [], {}, "")

# Fields that cost nothing at one value, which is the family's own.
NEUTRAL_AT: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "activation_function": ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"),
    "decoder_sparse_step": (1,),
    "moe_layer_freq": (1,),
}

# Why a field is left out, where more can be said than that it is not expressed.
REASONS: Mapping[str, str] = {
    "num_mtp_layers": "layers of multi-token prediction are not expressed",
    "mtp_num_hidden_layers": "layers of multi-token prediction are not expressed",
    "sliding_window": "not expressed: every layer attends to the whole sequence here",
    "quantization_config": "not expressed: training.precision says in which precision layers compute",
    "attention_bias": "biases of the projections are not expressed",
    "mlp_bias": "biases of the projections are not expressed",
    "qkv_bias": "biases of the projections are not expressed",
    "vision_config": "not expressed: only the text model is",
    "shared_expert_intermediate_size": "not expressed: this family has no shared expert here",
    "mlp_only_layers": "not expressed: every layer has experts here",
    "decoder_sparse_step": "not expressed: every layer has experts here",
    "moe_layer_freq": "not expressed: every layer after the first dense ones has experts here",
    "index_topk_pattern": "not expressed: layers that compute an index follow no period",
}
