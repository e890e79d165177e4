"""Refuses models whose sizes do not fit together, to the sequence or to the layout, family by family."""

from __future__ import annotations

from hyscale_model.scenario.fields import suggest
from hyscale_model.scenario.models import (
    DeepseekV4,
    LatentModel,
    Model,
    Qwen4,
    SparseLatentModel,
    compressed_kind,
    layer_kinds,
)
from hyscale_model.scenario.refuse import refuse
from hyscale_model.scenario.schema import DocumentLengths, LayerScope, Scenario, System
from hyscale_model.scenario.stages import begins_without_index, selecting_layers, sharing_split, virtual_stage_layers

# Fields that count what tensor parallelism spreads over its ranks -> what they count.
_SPREAD = {
    "num_attention_heads": "attention heads",
    "linear_num_key_heads": "key heads of the linear attention",
    "linear_num_value_heads": "value heads of the linear attention",
    "o_groups": "groups of the output projection",
}


def expert_field(model: Model) -> str | None:
    """The field that counts routed experts; None for a dense model."""
    return next((name for name in ("n_routed_experts", "num_experts") if hasattr(model, name)), None)


def index_layers(model: Model) -> tuple[int, ...] | None:
    """The layers, counted from 1, that compute an index, where layers share one; None where each has its own."""
    if not isinstance(model, SparseLatentModel) or model.index_topk_freq == 1:
        return None
    return selecting_layers(model.num_hidden_layers, model.index_topk_freq, model.index_skip_topk_offset)


def check_model(case: Scenario, system: System) -> None:
    """Checks a model alone, against the sequence, its documents, and the layer asked for.

    Raises:
        InputError: something does not fit; ``field`` is the one to change.
    """
    model, length = case.model, case.workload.sequence_length
    experts = expert_field(model)
    if isinstance(model, LatentModel):
        _at_most(case, system, "first_k_dense_replace", "dense layers", model.num_hidden_layers, "layers there are")
    if experts is not None:
        _at_most(case, system, "num_experts_per_tok", "experts a token", getattr(model, experts), "there are")
    if isinstance(model, SparseLatentModel):
        _at_most(case, system, "index_topk", "selected keys", length, "positions of a sequence")
    if isinstance(model, DeepseekV4):
        _check_ratios(model, length, system)
    if isinstance(model, Qwen4):
        _check_qwen4(model, case, system)
    key_heads = getattr(model, "num_key_value_heads", model.num_attention_heads)
    if model.num_attention_heads % key_heads:
        problem = f"{model.num_attention_heads} attention heads cannot share {key_heads} key-value heads evenly"
        refuse(system, "model.num_key_value_heads", problem, f"a divisor of {model.num_attention_heads}")
    _check_documents(case, system)
    if isinstance(case.scope, LayerScope) and case.scope.layer not in layer_kinds(model):
        problem = f"{model.name} ({model.model_type}) has no layer of kind {case.scope.layer[:60]!r}"
        refuse(system, "scope.layer", problem, suggest(case.scope.layer, layer_kinds(model)))


def _at_most(case: Scenario, system: System, field: str, what: str, limit: int, whole: str) -> None:
    value = getattr(case.model, field)
    if value > limit:
        refuse(system, f"model.{field}", f"{value} {what} are more than the {limit} {whole}", f"at most {limit}")


def _check_ratios(model: DeepseekV4, length: int, system: System) -> None:
    field, layers, entries = "model.compress_ratios", model.num_hidden_layers, len(model.compress_ratios)
    if entries not in (layers, layers + 1):
        problem = f"there are {entries} compression ratios for {layers} layers"
        refuse(system, field, problem, f"{layers}, one a layer, or {layers + 1} with that of a prediction layer")
    for layer, ratio in enumerate(model.layer_ratios):
        if ratio and length % ratio:
            problem = f"the ratio {ratio} of layer {layer} does not divide the {length} positions of a sequence"
            refuse(system, field, problem, "0 (window only), or a divisor of the sequence, such as 4 or 128")
    coarsest = max((ratio for ratio in model.layer_ratios if compressed_kind(ratio) == "csa"), default=None)
    if coarsest is not None and model.index_topk > length // coarsest:
        keys = length // coarsest
        problem = f"{model.index_topk} selected keys are more than the {length} / {coarsest} = {keys} compressed ones"
        refuse(system, "model.index_topk", problem, f"at most {keys}")


def _check_qwen4(model: Qwen4, case: Scenario, system: System) -> None:
    length = case.workload.sequence_length
    _at_most(case, system, "full_attention_interval", "layers between", model.num_hidden_layers, "layers there are")
    _at_most(case, system, "indexer_budget", "selected keys", length, "positions of a sequence")
    if model.indexer_budget % model.indexer_compress_ratio:
        problem = f"a budget of {model.indexer_budget} keys is no whole number of blocks"
        expected = f"a multiple of indexer_compress_ratio = {model.indexer_compress_ratio}"
        refuse(system, "model.indexer_budget", problem, expected)
    beyond = [layer for layer in (model.ple.layer_ids if model.ple else ()) if layer > model.num_hidden_layers]
    if beyond:
        problem = f"layer {beyond[0]} is not one of the {model.num_hidden_layers} layers, counted from 1"
        refuse(system, "model.ple", problem, f"layer_ids of at most {model.num_hidden_layers}")


def _check_documents(case: Scenario, system: System) -> None:
    documents, length = case.workload.document_lengths, case.workload.sequence_length
    field = "workload.document_lengths"
    if isinstance(documents, DocumentLengths):
        pairs = list(zip(documents.lengths, documents.weights, strict=True))
        long, total = sum(weight for size, weight in pairs if size > length), sum(documents.weights)
        if long:
            problem = f"{long:,.6g} of {total:,.6g} documents are longer than the {length} positions of a sequence"
            refuse(system, field, problem, f"lengths of at most {length}")
    elif documents != "none" and documents > length:
        problem = f"documents of {documents} are longer than the {length} positions of a sequence"
        refuse(system, field, problem, f"at most {length}")


def check_heads(case: Scenario, system: System) -> None:
    """Checks that tensor parallelism can spread heads, and expert parallelism experts.

    Raises:
        InputError: it cannot; ``field`` is the one to change.
    """
    model, layout = case.model, case.layout
    for name, what in _SPREAD.items():
        count = getattr(model, name, None)
        if count is not None and count % layout.tp:
            refuse(system, "layout.tp", f"tp = {layout.tp} does not divide the {count} {what}", f"a divisor of {count}")
    # More ranks than key-value heads hold copies of them (Megatron-LM megatron/core/transformer/attention.py).
    shared = getattr(model, "num_key_value_heads", layout.tp)
    if shared % layout.tp and layout.tp % shared:
        problem = f"tp = {layout.tp} neither divides the {shared} key-value heads nor is a multiple of them"
        refuse(system, "layout.tp", problem, f"a divisor or a multiple of {shared}")
    experts = expert_field(model)
    if experts is None:
        for name in ("ep", "etp"):
            if getattr(layout, name) != 1:
                problem = f"{name} = {getattr(layout, name)}, and {model.name} ({model.model_type}) has no experts"
                refuse(system, f"layout.{name}", problem, "1")
        return
    count = getattr(model, experts)
    if count % layout.ep:
        problem = f"ep = {layout.ep} does not divide the {count} routed experts"
        refuse(system, "layout.ep", problem, f"a divisor of {count}")


# Modules of selective recomputation -> the field that a model with such a module has.
_MODULE_FIELDS = {
    "mla_up_proj": ("kv_lora_rank", "latent attention"),
    "moe": ("num_experts_per_tok", "experts"),
    "moe_act": ("num_experts_per_tok", "experts"),
    "shared_experts": ("n_shared_experts", "shared experts"),
}


def check_recompute(case: Scenario, system: System) -> None:
    """Checks that the model has the modules that selective recomputation names.

    Raises:
        InputError: it lacks one.
    """
    if case.training.recompute != "selective":
        return
    for name in case.training.recompute_modules:
        field, what = _MODULE_FIELDS.get(name, ("hidden_size", ""))
        if not hasattr(case.model, field):
            problem = f"{name} is to be recomputed, and {case.model.name} ({case.model.model_type}) has no {what}"
            refuse(system, "training.recompute_modules", problem, "modules that the model has")


def check_context(case: Scenario, system: System) -> None:
    """Checks that context ranks exchange keys in a way that exists for the model's attention.

    Raises:
        InputError: ring or all-to-all for attention that selects keys, or more ranks than heads to trade.
    """
    layout, model = case.layout, case.model
    if layout.cp_kind == "allgather" or layout.cp == 1:
        return
    dense = {"mla", "gqa", "mha"}
    if not set(layer_kinds(model)) <= dense:
        problem = f"cp_kind is {layout.cp_kind}, and {model.name} ({model.model_type}) has layers that select keys"
        refuse(system, "layout.cp_kind", problem, "allgather, the only one for sparse attention")
    heads = model.num_attention_heads // layout.tp
    if layout.cp_kind == "alltoall" and heads % layout.cp:
        problem = f"cp = {layout.cp} ranks cannot trade tokens for the {heads} heads of a tensor rank evenly"
        refuse(system, "layout.cp", problem, f"a divisor of {heads}, or another cp_kind")


def check_shared_index(case: Scenario, system: System) -> None:
    """Checks that each virtual stage begins on a layer that computes its index, where layers share one.

    Raises:
        InputError: one does not; the message has a split that works.
    """
    layout, layers, selecting = case.layout, case.model.num_hidden_layers, index_layers(case.model)
    if selecting is None:
        return
    stages = layout.pp * layout.vpp
    if len(selecting) < stages:
        problem = f"pp x vpp = {stages} stages cannot each begin on one of the {len(selecting)} layers with an index"
        refuse(system, "layout.vpp" if layout.vpp > 1 else "layout.pp", problem, f"at most {len(selecting)} stages")
    split = virtual_stage_layers(layers, layout.pp, layout.vpp, layout.stage_layers, selecting)
    found = begins_without_index(split, selecting)
    if found is None:
        return
    stage, layer = found
    kind = "virtual stage" if layout.vpp > 1 else "stage"
    works = ", ".join(map(str, sharing_split(layers, stages, selecting)))
    problem = f"{kind} {stage} begins on layer {layer} (counted from 1), which shares the index of a layer before it"
    refuse(system, "layout.stage_layers", problem, f"stages that begin on a layer with an index: [{works}]")
