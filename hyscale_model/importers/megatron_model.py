"""The model that Megatron-LM arguments describe."""

from __future__ import annotations

from hyscale_model.errors import InputError
from hyscale_model.importers.imported import Entry
from hyscale_model.importers.megatron_reader import DEFAULT, Reader
from hyscale_model.importers.patterns import layer_pattern

# A guess for a tokenizer whose size no argument tells.
VOCABULARY = 131072
_TOKENIZERS = {"GPT2BPETokenizer": 50257}

Fields = dict[str, Entry]


def read_model(reader: Reader, name: str) -> Fields:
    """The fields of the model, of the family whose layers compute what the arguments ask for.

    Raises:
        InputError: an argument the cost depends on is missing, or no family computes that.
    """
    latent = bool(reader.flag("multi-latent-attention").value)
    sparse = _sparse(reader, latent)
    experts = reader.whole("num-experts", "num-moe-experts")
    fields: Fields = {"name": Entry(name, "the name of the source", stated=False)}
    if latent and not (experts and experts.value):
        raise InputError(
            "multi-latent attention without experts", reader.source, expected="--num-experts, or attention of a GPT"
        )
    if latent:
        family = "deepseek_v32" if sparse else "deepseek_v3"
        origin = "--multi-latent-attention with experts" + (" and an indexer" if sparse else "")
    elif experts and experts.value:
        family, origin = "qwen3_moe", "--num-experts without latent attention"
    elif reader.flag("swiglu").value:
        family, origin = "llama", "--swiglu: a gated feed-forward"
    else:
        family, origin = "gpt", "no --swiglu: a plain feed-forward"
    fields["model_type"] = Entry(family, origin, stated=False)
    fields |= _common(reader)
    if latent:
        _latent(reader, fields, sparse)
    elif family == "qwen3_moe":
        _grouped(reader, fields)
        _experts_everywhere(reader, fields)
    elif family == "llama":
        _grouped(reader, fields)
        fields["intermediate_size"] = _width(reader, fields)
    else:
        _gpt(reader, fields)
    predicted = reader.whole("mtp-num-layers", "num-nextn-predict-layers")
    if predicted is not None:
        fields["num_nextn_predict_layers"] = predicted
    # Only learned positions are parameters.
    reader.text("max-position-embeddings")
    if family not in ("gpt", "llama") and not reader.flag("swiglu").value:
        reader.note("swiglu", "a gated feed-forward is assumed, and this switch is not set")
    return fields


def _sparse(reader: Reader, latent: bool) -> bool:
    variant = reader.text("experimental-attention-variant")
    if variant is None:
        return False
    if variant != "dsa" or not latent:
        problem = f"--experimental-attention-variant {variant}" + ("" if latent else " without latent attention")
        raise InputError(f"{problem} is no family of models here", reader.source, expected="dsa with latent attention")
    return True


def _common(reader: Reader) -> Fields:
    fields = {
        "num_hidden_layers": reader.required("num-layers"),
        "hidden_size": reader.required("hidden-size"),
        "num_attention_heads": reader.required("num-attention-heads"),
        "vocab_size": _vocabulary(reader),
    }
    untied = reader.flag("untie-embeddings-and-output-weights")
    fields["tie_word_embeddings"] = Entry(not untied.value, untied.origin, untied.stated)
    return fields


def _vocabulary(reader: Reader) -> Entry:
    """The rows of the embedding: padded so that tensor parallelism can cut it."""
    padded = reader.whole("padded-vocab-size")
    stated, tokenizer = reader.whole("vocab-size"), reader.text("tokenizer-type")
    multiple = (
        reader.count("make-vocab-size-divisible-by", 128).value * reader.count("tensor-model-parallel-size", 1).value
    )
    if padded:
        return padded
    if stated is None and tokenizer not in _TOKENIZERS:
        return Entry(VOCABULARY, "a guess: no argument tells the size of the vocabulary", stated=False)
    size, origin = (stated.value, stated.origin) if stated else (_TOKENIZERS[str(tokenizer)], str(tokenizer))
    rows = -(-size // multiple) * multiple
    padding = f", padded from {size} to a multiple of {multiple}" if rows > size else ""
    return Entry(rows, origin + padding, stated is not None)


def _width(reader: Reader, fields: Fields) -> Entry:
    hidden = fields["hidden_size"].value
    if reader.flag("swiglu").value:
        default = Entry(4 * hidden * 2 // 3 // 64 * 64, "8/3 hidden-size in multiples of 64", stated=False)
    else:
        default = Entry(4 * hidden, "4 x hidden-size", stated=False)
    return reader.whole("ffn-hidden-size") or default


def _grouped(reader: Reader, fields: Fields) -> None:
    heads, hidden = fields["num_attention_heads"].value, fields["hidden_size"].value
    grouped = reader.flag("group-query-attention")
    if grouped.value:
        fields["num_key_value_heads"] = reader.count("num-query-groups", 1)
    else:
        # Without the switch the number of groups is ignored.
        reader.whole("num-query-groups")
        fields["num_key_value_heads"] = Entry(heads, "no --group-query-attention: one for each head", stated=False)
    fields["head_dim"] = reader.whole("kv-channels") or Entry(hidden // max(heads, 1), "hidden-size over heads", False)


def _gpt(reader: Reader, fields: Fields) -> None:
    hidden, heads = fields["hidden_size"].value, fields["num_attention_heads"].value
    fields["intermediate_size"] = _width(reader, fields)
    positions = reader.whole("max-position-embeddings") or reader.whole("seq-length", "decoder-seq-length")
    fields["max_position_embeddings"] = positions or Entry(2048, "a guess: no argument tells", stated=False)
    channels, groups = reader.whole("kv-channels"), reader.whole("num-query-groups")
    if channels and channels.value * heads != hidden:
        reader.note("kv-channels", "not expressed: heads of hidden-size over their number are assumed")
    if reader.flag("group-query-attention").value and groups and groups.value != heads:
        reader.note("num-query-groups", "not expressed: without --swiglu each head has its own keys here")


def _latent(reader: Reader, fields: Fields, sparse: bool) -> None:
    rank = reader.whole("q-lora-rank")
    if rank is None:
        raise InputError("--q-lora-rank is missing", reader.source, expected="latent attention with compressed queries")
    fields["q_lora_rank"] = rank
    fields["kv_lora_rank"] = reader.count("kv-lora-rank", 32)
    fields["qk_nope_head_dim"] = reader.count("qk-head-dim", 128)
    fields["qk_rope_head_dim"] = reader.count("qk-pos-emb-head-dim", 64)
    fields["v_head_dim"] = reader.count("v-head-dim", 128)
    # Latent attention has widths of its own and shares its keys and values in another way.
    reader.flag("group-query-attention")
    for name in ("kv-channels", "num-query-groups"):
        reader.whole(name)
    fields["intermediate_size"] = _width(reader, fields)
    fields["moe_intermediate_size"] = _expert_width(reader, fields)
    fields["n_routed_experts"] = reader.required("num-experts" if "num-experts" in reader else "num-moe-experts")
    fields["num_experts_per_tok"] = reader.count("moe-router-topk", 2)
    fields["n_shared_experts"] = _shared(reader, fields["moe_intermediate_size"].value)
    fields["first_k_dense_replace"] = _dense_layers(reader, fields["num_hidden_layers"].value)
    if sparse:
        for name, argument in (("n_heads", "n-heads"), ("head_dim", "head-dim"), ("topk", "topk")):
            fields[f"index_{name}"] = reader.required(f"dsa-indexer-{argument}")
        fields["index_topk_freq"] = reader.count("dsa-indexer-topk-freq", 1)
        fields["index_skip_topk_offset"] = reader.count("dsa-indexer-skip-topk-offset", 0)


def _expert_width(reader: Reader, fields: Fields) -> Entry:
    found = reader.whole("moe-ffn-hidden-size")
    width = _width(reader, fields)
    return found or Entry(width.value, f"{DEFAULT}: that of a dense layer ({width.origin})", stated=False)


def _shared(reader: Reader, width: int) -> Entry:
    width = max(width, 1)
    found = reader.whole("moe-shared-expert-intermediate-size")
    if found is None or found.value <= 0:
        return Entry(0, "no --moe-shared-expert-intermediate-size", stated=False)
    if found.value % width:
        reader.note("moe-shared-expert-intermediate-size", f"rounded up to a multiple of the {width} of an expert")
    return Entry(-(-found.value // width), f"{found.origin}, in experts of {width}")


def _dense_layers(reader: Reader, layers: int) -> Entry:
    """The dense layers at the start; others between layers with experts are not expressed."""
    text = reader.text("moe-layer-freq")
    if text is None:
        return Entry(0, f"{DEFAULT}: experts in every layer", stated=False)
    pattern = _pattern(text, layers)
    if pattern is None:
        reader.note("moe-layer-freq", "not expressed: experts in every layer are assumed")
        return Entry(0, "experts in every layer are assumed", stated=False)
    dense = next((index for index, kind in enumerate(pattern) if kind), len(pattern))
    if not all(pattern[dense:]):
        reader.note("moe-layer-freq", "not expressed: dense layers beyond the first ones have experts here")
    return Entry(dense, reader.origin("moe-layer-freq"))


def _pattern(text: str, layers: int) -> list[int] | None:
    if text.isdigit() and int(text) > 0 and layers <= 10_000:
        return [int(index % int(text) == 0) for index in range(layers)]
    listed = f"[{','.join(text.split())}]" if text.replace(" ", "").isdigit() else text
    found = layer_pattern(listed)
    return found if found is not None and len(found) == layers else None


def _experts_everywhere(reader: Reader, fields: Fields) -> None:
    fields["moe_intermediate_size"] = _expert_width(reader, fields)
    fields["num_experts"] = reader.required("num-experts" if "num-experts" in reader else "num-moe-experts")
    fields["num_experts_per_tok"] = reader.count("moe-router-topk", 2)
    if _dense_layers(reader, fields["num_hidden_layers"].value).value:
        reader.note("moe-layer-freq", "not expressed: every layer has experts here")
    if _shared(reader, 1).value:
        reader.note("moe-shared-expert-intermediate-size", "not expressed: this family has no shared expert here")
