"""Fields that a ``config.json`` spells differently: lists of layer types, embedding tables, implied widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any

from hyscale_model.importers.imported import Entry, Unexpressed, unexpressed
from hyscale_model.scenario.stages import selecting_layers

_RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_LEGACY_RATES = {
    "compressed_sparse_attention": "compress_rate_csa",
    "heavily_compressed_attention": "compress_rate_hca",
}
_TABLE = ("ple_layer_ids", "ple_embed_dim", "ngram_size", "heads_per_ngram", "ngram_vocab_size_base")
# Beyond this the search for primes would take long, and no table is that large.
_LARGEST_TABLE = 10**9

# Lists of layers: they decide where a number that sums them up says something else.
LISTS = ("layer_types", "mlp_layer_types", "indexer_types")

Derived = tuple[dict[str, Entry], set[str], list[Unexpressed]]


def derived(family: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Derived:
    """Fields of the schema that follow from others, the fields they follow from, and what they could not say."""
    entries = {
        name: Entry(value, "what transformers takes where the file is silent", stated=False)
        for name, value in defaults.items()
    }
    used: set[str] = set()
    notes: list[Unexpressed] = []
    heads, hidden = whole(values, "num_attention_heads"), whole(values, "hidden_size")
    if family in ("llama", "qwen3", "qwen3_moe") and heads:
        entries.setdefault("num_key_value_heads", Entry(heads, "num_attention_heads: none are shared", stated=False))
        if family == "qwen3_moe" and hidden:
            entries.setdefault("head_dim", Entry(hidden // heads, "hidden_size over num_attention_heads", stated=False))
    if family == "gpt" and hidden:
        entries["intermediate_size"] = Entry(4 * hidden, "4 x hidden_size", stated=False)
    if family == "qwen4_exp":
        _ngram_table(values, hidden, entries, used)
        _interval(values, entries, used, notes)
    if family == "deepseek_v4":
        _ratios(values, entries, used)
    if family in ("glm_moe_dsa", "deepseek_v32"):
        _index_sharing(values, entries, used, notes)
    if family in ("glm_moe_dsa", "deepseek_v32", "deepseek_v3"):
        _dense_layers(values, entries, used, notes)
    return entries, used, notes


def whole(values: Mapping[str, Any], name: str) -> int | None:
    """A field that holds a whole number above 0."""
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _texts(values: Mapping[str, Any], name: str) -> list[str] | None:
    value = values.get(name)
    return list(map(str, value)) if isinstance(value, list) and value else None


def _ratios(values: Mapping[str, Any], entries: dict[str, Entry], used: set[str]) -> None:
    """Compression ratios from the types of layers."""
    kinds = _texts(values, "layer_types")
    used.update({"compress_rates", *_LEGACY_RATES.values()})
    if kinds is None:
        return
    used.add("layer_types")
    rates = values.get("compress_rates")
    known = {**_RATIOS, **(rates if isinstance(rates, dict) else {})}
    known |= {kind: values[name] for kind, name in _LEGACY_RATES.items() if whole(values, name)}
    stated = values.get("compress_ratios")
    # A longer list has entries for layers of multi-token prediction too.
    if set(kinds) <= set(known) and not (
        isinstance(stated, list) and stated[: len(kinds)] == [known[kind] for kind in kinds]
    ):
        entries["compress_ratios"] = Entry([known[kind] for kind in kinds], "layer_types", stated=False)


def _dense_layers(
    values: Mapping[str, Any], entries: dict[str, Entry], used: set[str], notes: list[Unexpressed]
) -> None:
    """The leading dense layers from the types of feed-forward layers."""
    kinds = _texts(values, "mlp_layer_types")
    if kinds is None:
        return
    used.add("mlp_layer_types")
    dense = next((index for index, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    if "dense" in kinds[dense:]:
        notes.append(unexpressed("mlp_layer_types", None, "not expressed: dense layers beyond the first ones"))
    entries["first_k_dense_replace"] = Entry(dense, "mlp_layer_types", stated=False)


def _index_sharing(
    values: Mapping[str, Any], entries: dict[str, Entry], used: set[str], notes: list[Unexpressed]
) -> None:
    """Period and offset of the layers that compute an index, from a list of them."""
    kinds = _texts(values, "indexer_types")
    if kinds is None:
        if (whole(values, "index_topk_freq") or 1) > 1:
            origin = "what transformers takes where the file is silent"
            entries["index_skip_topk_offset"] = Entry(2, origin, stated=False)
        return
    used.add("indexer_types")
    selecting = [index for index, kind in enumerate(kinds, 1) if kind == "full"]
    freq, offset = whole(values, "index_topk_freq"), values.get("index_skip_topk_offset")
    if freq and isinstance(offset, int) and list(selecting_layers(len(kinds), freq, offset)) == selecting:
        return
    found = _period(selecting, len(kinds))
    if found is None:
        notes.append(unexpressed("indexer_types", None, "not expressed: layers that compute an index follow no period"))
        return
    freq, offset = found
    entries["index_topk_freq"] = Entry(freq, "indexer_types", stated=False)
    entries["index_skip_topk_offset"] = Entry(offset, "indexer_types", stated=False)


def _period(selecting: Sequence[int], layers: int) -> tuple[int, int] | None:
    """(freq, offset) whose selecting layers are these."""
    if len(selecting) == layers:
        return 1, 0
    offset = next((count for count, layer in enumerate(selecting) if layer != count + 1), len(selecting))
    freq = selecting[offset] - offset if offset < len(selecting) else layers
    if offset == 0 or selecting_layers(layers, freq, offset) != tuple(selecting):
        return None
    return freq, offset


def _interval(values: Mapping[str, Any], entries: dict[str, Entry], used: set[str], notes: list[Unexpressed]) -> None:
    """How often a full-attention layer comes, from the types of layers."""
    kinds = _texts(values, "layer_types")
    if kinds is None:
        entries.setdefault("full_attention_interval", Entry(4, "what transformers takes", stated=False))
        return
    used.add("layer_types")
    full = [index for index, kind in enumerate(kinds, 1) if kind != "linear_attention"]
    interval = full[0] if full else len(kinds)
    entries["full_attention_interval"] = Entry(interval, "layer_types", stated=False)
    if full != list(range(interval, len(kinds) + 1, interval)):
        notes.append(unexpressed("layer_types", None, "not expressed: full-attention layers follow no period"))


def _ngram_table(values: Mapping[str, Any], hidden: int | None, entries: dict[str, Entry], used: set[str]) -> None:
    """The table of n-gram embeddings.

    Each of (ngram_size - 1) x heads_per_ngram heads has a prime number of rows, the next ones from the base on.
    """
    used.update({*_TABLE, "ple_conv_kernel_size"})
    layers = values.get("ple_layer_ids")
    if not isinstance(layers, list) or not layers:
        return
    size, per_gram = whole(values, "ngram_size") or 3, whole(values, "heads_per_ngram") or 8
    base, width = whole(values, "ngram_vocab_size_base") or 20_000_000, whole(values, "ple_embed_dim") or hidden
    heads = (size - 1) * per_gram
    if not width or not 0 < heads <= 128 or width % heads or base > _LARGEST_TABLE:
        return
    divisor = whole(values, "make_ngram_vocab_size_divisible_by") or 128
    rows = -(-sum(_primes(base, heads)) // divisor) * divisor
    table = {
        "layer_ids": layers,
        "ngram_size": size,
        "heads_per_ngram": per_gram,
        "embed_dim": width,
        "rows": rows,
        "row_width": width // heads,
    }
    entries["ple"] = Entry(table, "ple_layer_ids, ngram_size, ngram_vocab_size_base and their like", stated=False)


def _primes(base: int, count: int) -> list[int]:
    found: list[int] = []
    candidate = max(base, 2)
    while len(found) < count:
        if all(candidate % divisor for divisor in range(2, isqrt(candidate) + 1)):
            found.append(candidate)
        candidate += 1
    return found
