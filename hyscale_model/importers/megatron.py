"""Scenarios from Megatron-LM arguments: a launch script, a YAML file or the arguments themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from hyscale_model.importers.imported import Entry, Imported
from hyscale_model.importers.launch import Launch, parse_arguments, read_launch
from hyscale_model.importers.megatron_model import Fields, read_model
from hyscale_model.importers.megatron_reader import DEFAULT, Reader
from hyscale_model.importers.patterns import pipeline_layout
from hyscale_model.scenario.fields import choices, hints
from hyscale_model.scenario.schema import GraphModule, Layout, RecomputeModule, Training

# How context parallelism exchanges keys -> names the schema may have for it.
_CONTEXT = {
    "allgather": ("allgather",),
    "all_gather": ("allgather",),
    "p2p": ("ring", "p2p"),
    "a2a": ("alltoall", "a2a"),
    "a2a+p2p": ("a2a_p2p",),
}
# Names of switches that the layout has too, with dashes.
_OVERLAPS = (
    "overlap-grad-reduce",
    "overlap-param-gather",
    "tp-comm-overlap",
    "overlap-moe-expert-parallel-comm",
    "moe-shared-expert-overlap",
)
_MODULES = get_args(RecomputeModule)
_GRAPH_MODULES = get_args(GraphModule)
_STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_BACKENDS = {"tilelang": "tilelang", "cudnn": "cudnn", "none": "unfused"}


def read_megatron(path: str | Path) -> Imported:
    """The scenario in a launch script or a YAML file of arguments.

    Raises:
        InputError: the file cannot be read, lacks an argument the cost depends on, or has one that makes no sense.
    """
    return _imported(read_launch(path), Path(path).stem)


def megatron_arguments(words: Sequence[str]) -> Imported:
    """The scenario in arguments as a shell would split them, such as ``["--num-layers", "12"]``.

    Raises:
        InputError: as in ``read_megatron``.
    """
    return _imported(parse_arguments(words), "imported")


def _imported(launch: Launch, name: str) -> Imported:
    reader = Reader(launch.source, launch.program)
    model = read_model(reader, name)
    layout = _layout(reader, model)
    sections = {
        "model": model,
        "layout": layout,
        "workload": _workload(reader),
        "training": _training(reader, sparse="index_topk" in model),
    }
    systems = _systems(reader)
    each = _processes(launch, reader)
    gpus = _gpus(launch, reader, each)
    return Imported(
        source=launch.source,
        sections=sections,
        systems=systems,
        not_expressed=tuple(dict.fromkeys([*launch.unread, *reader.rest()])),
        gpus=gpus,
        gpus_per_node=each,
    )


def _processes(launch: Launch, reader: Reader) -> Entry | None:
    """GPUs of a node: the processes that the launcher starts on each."""
    return _launched(launch, reader, "nproc-per-node", "ntasks-per-node", "gpus-per-node")


def _gpus(launch: Launch, reader: Reader, each: Entry | None) -> int | None:
    """GPUs by what the launcher starts: nodes x processes a node, or the world size itself."""
    world = reader.whole("world-size")
    nodes = _launched(launch, reader, "nnodes", "nodes")
    if world and world.value:
        return int(world.value)
    if each is None or (nodes is None and any(name in launch.launcher for name in ("nnodes", "nodes"))):
        return None
    return int(each.value * (nodes.value if nodes else 1)) or None


def _launched(launch: Launch, reader: Reader, *names: str) -> Entry | None:
    """A number among the launcher's arguments; ``gpu``, ``auto`` and ranges are told only when it starts."""
    launcher = Reader(launch.source, launch.launcher)
    name = next((name for name in names if name in launcher), None)
    if name is None:
        return None
    text = launcher.text(name)
    if text is not None and not text.isdigit():
        launcher.note(name, "not read: a number is expected, and what this gives is known only when it starts")
        text = None
    reader.notes.extend(launcher.notes)
    return launcher.whole(name) if text else None


def _layout(reader: Reader, model: Fields) -> Fields:
    layers = model["num_hidden_layers"].value
    fields = {
        "tp": reader.count("tensor-model-parallel-size", 1),
        "pp": reader.count("pipeline-model-parallel-size", 1),
        "cp": reader.count("context-parallel-size", 1),
        "ep": reader.count("expert-model-parallel-size", 1),
    }
    has_experts = "num_experts_per_tok" in model
    if has_experts:
        tensor = Entry(fields["tp"].value, f"{DEFAULT}: that of the other layers", stated=False)
        fields["etp"] = reader.whole("expert-tensor-parallel-size") or tensor
    else:
        reader.whole("expert-tensor-parallel-size")
        fields["etp"] = Entry(1, "no experts", stated=False)
    pp = max(fields["pp"].value, 1)
    fields["vpp"] = _virtual_stages(reader, layers, pp)
    _stage_layers(reader, layers, pp, fields)
    name = "interleaved" if fields["vpp"].value > 1 else "1f1b"
    fields["schedule"] = Entry(name, f"vpp = {fields['vpp'].value}", stated=False)
    fields["zero"] = _sharding(reader)
    instances = reader.whole("num-distributed-optimizer-instances")
    if instances is not None and fields["zero"].value:
        fields["num_distributed_optimizer_instances"] = instances
    if fields["cp"].value > 1:
        _context(reader, fields, sparse="index_topk" in model)
    else:
        reader.text("cp-comm-type")
    shards = reader.flag("sequence-parallel")
    fields["sequence_parallel"] = Entry(bool(shards.value), shards.origin, shards.stated)
    for name in _OVERLAPS:
        if name in reader:
            fields[name.replace("-", "_")] = reader.flag(name)
    blocking = reader.flag("no-overlap-p2p-communication")
    if fields["vpp"].value > 1:
        hidden = Entry(not blocking.value, f"{DEFAULT} with virtual stages", blocking.stated)
        fields["overlap_p2p_comm"] = hidden
    return fields


def _sharding(reader: Reader) -> Entry:
    """The ZeRO stage: of the distributed optimizer, or of the sharding strategy of fully sharded data parallelism."""
    strategy = reader.text("data-parallel-sharding-strategy")
    fsdp = [name for name in ("use-megatron-fsdp", "use-torch-fsdp2") if reader.flag(name).value]
    sharded = reader.flag("use-distributed-optimizer")
    if fsdp and strategy in _STRATEGIES:
        return Entry(_STRATEGIES[strategy], reader.origin("data-parallel-sharding-strategy"))
    if fsdp:
        return Entry(3, f"--{fsdp[0]}: everything is sharded")
    return Entry(int(sharded.value), sharded.origin, sharded.stated)


def _virtual_stages(reader: Reader, layers: int, pp: int) -> Entry:
    # Whichever of these is not taken stays among what is not expressed.
    stages = reader.whole("num-virtual-stages-per-pipeline-rank", "virtual-pipeline-model-parallel-size")
    if stages:
        return stages if stages.value else Entry(1, stages.origin)
    each = reader.whole("num-layers-per-virtual-pipeline-stage")
    if each and each.value > 0:
        count = max(layers // pp // each.value, 1)
        return Entry(count, f"{each.origin}: {layers} layers over {pp} ranks")
    return Entry(1, f"{DEFAULT}: no virtual stages", stated=False)


def _stage_layers(reader: Reader, layers: int, pp: int, fields: Fields) -> None:
    """Layers of each stage, from a layout or from those of the first and last stage."""
    text = reader.text("pipeline-model-parallel-layout")
    first = reader.whole("decoder-first-pipeline-num-layers")
    last = reader.whole("decoder-last-pipeline-num-layers")
    if text is not None:
        stages = pipeline_layout(text)
        counts = [stage.lower().count("t") for stage in stages or []]
        if stages is None or len(stages) % pp or sum(counts) != layers:
            reader.note("pipeline-model-parallel-layout", "not expressed: layers are spread evenly")
            return
        origin = reader.origin("pipeline-model-parallel-layout")
        fields["stage_layers"] = Entry(counts, origin)
        fields["vpp"] = Entry(len(stages) // pp, origin)
        return
    if first is None and last is None:
        return
    ends = [entry for entry in (first, last) if entry]
    middle, left = pp - len(ends), layers - sum(entry.value for entry in ends)
    if not 0 < middle <= left or left % middle:
        for entry in ends:
            reader.note(entry.origin.split(",")[0].removeprefix("--"), "not expressed: layers are spread evenly")
        return
    counts = [left // middle] * middle
    counts = [*([first.value] if first else []), *counts, *([last.value] if last else [])]
    fields["stage_layers"] = Entry(counts, " and ".join(entry.origin for entry in ends))


def _context(reader: Reader, fields: Fields, sparse: bool) -> None:
    text = reader.text("cp-comm-type")
    stated = text is not None
    kinds = set((text or "p2p").split())
    # Sparse attention gathers keys, whatever the argument or its default says.
    offered = ["allgather"] if sparse else choices(hints(Layout)["cp_kind"])
    if len(kinds) == 1:
        known = [name for name in _CONTEXT.get(kinds.pop(), ()) if name in offered]
        if known:
            origin = reader.origin("cp-comm-type") if stated else DEFAULT
            fields["cp_kind"] = Entry(known[0], origin, stated)
            return
    default = "allgather" if "allgather" in offered else offered[0]
    fields["cp_kind"] = Entry(default, "the nearest that the model knows", stated=False)
    reader.note("cp-comm-type", f"not expressed{'' if stated else ' (default p2p)'}: {default} is assumed")


def _workload(reader: Reader) -> Fields:
    micro = reader.count("micro-batch-size", 1)
    fields = {"sequence_length": reader.whole("seq-length") or reader.required("decoder-seq-length")}
    if "global-batch-size" in reader:
        # A default in place of a value that is given but not known would be far off.
        fields["global_batch_size"] = reader.required("global-batch-size")
    fields["micro_batch_size"] = micro
    return fields


def _training(reader: Reader, sparse: bool) -> Fields:
    reader.flag("bf16")
    fp8 = reader.text("fp8-format", "fp8")
    precision = Entry("fp8", reader.origin("fp8-format" if "fp8-format" in reader else "fp8")) if fp8 else None
    plain = reader.flag("bf16")
    fields: Fields = {"precision": precision or Entry("bf16", plain.origin, plain.stated)}
    fields["recompute"] = _recompute(reader)
    if fields["recompute"].value == "selective":
        fields["recompute_modules"] = _modules(reader)
    else:
        reader.text("recompute-modules")
    if reader.text("attention-backend") == "unfused":
        fields["attention_backend"] = Entry("unfused", reader.origin("attention-backend"))
    implementation = reader.text("cross-entropy-fusion-impl") or "native"
    if reader.flag("cross-entropy-loss-fusion").value and implementation in ("native", "te"):
        fields["cross_entropy_fusion"] = Entry(implementation, reader.origin("cross-entropy-loss-fusion"))
    optimizer = (reader.text("optimizer") or "adam").removeprefix("dist_")
    if optimizer not in choices(hints(Training)["optimizer"]):
        reader.note("optimizer", "not expressed: adam is assumed")
        fields["optimizer"] = Entry("adam", "the nearest that the model knows", stated=False)
    elif "optimizer" in reader:
        fields["optimizer"] = Entry(optimizer, reader.origin("optimizer"))
    else:
        fields["optimizer"] = Entry(optimizer, DEFAULT, stated=False)
    fields |= _offload(reader) | _graphs(reader)
    moments = [(name, reader.text(name)) for name in ("exp-avg-dtype", "exp-avg-sq-dtype")]
    reader.flag("use-precision-aware-optimizer")
    if all(text == "bf16" for _, text in moments):
        fields["optimizer_state_precision"] = Entry("bf16", reader.origin("exp-avg-dtype"))
    else:
        for name, text in moments:
            if text not in (None, "fp32"):
                reader.note(name, "not expressed: moments are both in FP32, or both in BF16")
    narrow, wide = reader.flag("grad-reduce-in-bf16"), reader.flag("accumulate-allreduce-grads-in-fp32")
    if narrow.value:
        fields["gradient_precision"] = Entry("bf16", narrow.origin)
    else:
        origin = wide.origin if wide.value else f"{DEFAULT} with bf16"
        fields["gradient_precision"] = Entry("fp32", origin, stated=bool(wide.value))
    if sparse:
        fields["index_loss"] = _index_loss(reader)
    forced = reader.flag("moe-router-force-load-balancing")
    if forced.value:
        fields["moe_imbalance"] = Entry(1.0, forced.origin)
    return fields


def _offload(reader: Reader) -> Fields:
    """Optimizer states and activations in host memory, and Muon's constants, where they are given."""
    fields: Fields = {}
    for name in ("optimizer-cpu-offload", "overlap-cpu-optimizer-d2h-h2d"):
        flag = reader.flag(name)
        if flag.value:
            fields[name.replace("-", "_")] = flag
    share = reader.text("optimizer-offload-fraction")
    if share is not None and fields:
        try:
            fields["optimizer_offload_fraction"] = Entry(float(share), reader.origin("optimizer-offload-fraction"))
        except ValueError:
            reader.note("optimizer-offload-fraction", "not a number: all of the optimizer is assumed to be offloaded")
    for name in ("cpu-offloading-num-layers", "muon-num-ns-steps"):
        count = reader.whole(name)
        if count is not None:
            fields[name.replace("-", "_")] = count
    mode = reader.text("muon-tp-mode")
    if mode in choices(hints(Training)["muon_tp_mode"]):
        fields["muon_tp_mode"] = Entry(mode, reader.origin("muon-tp-mode"))
    return fields


def _graphs(reader: Reader) -> Fields:
    """CUDA graphs; the scope of older releases names modules, or the whole iteration."""
    fields: Fields = {}
    text, enabled = reader.text("cuda-graph-impl"), reader.flag("enable-cuda-graph")
    name = "cuda-graph-impl" if text is not None else "enable-cuda-graph"
    impl = text if text is not None else "local" if enabled.value else None
    scope_name = next((each for each in ("cuda-graph-modules", "cuda-graph-scope") if each in reader), None)
    scope = (reader.text(scope_name) or "").replace(",", " ").split() if scope_name else []
    if impl is not None and impl != "none" and "full_iteration" in scope:
        impl, scope = "full_iteration", []
    if impl in choices(hints(Training)["cuda_graph_impl"]):
        fields["cuda_graph_impl"] = Entry(impl, reader.origin(name))
    elif impl is not None:
        reader.note(name, "not expressed: the host launches every kernel")
    known = [each for each in scope if each in _GRAPH_MODULES]
    if scope_name and known:
        fields["cuda_graph_modules"] = Entry(known, reader.origin(scope_name))
    if scope_name and len(known) < len(scope):
        reader.note(scope_name, f"not expressed: {', '.join(each for each in scope if each not in known)}")
    return fields


def _recompute(reader: Reader) -> Entry:
    granularity = reader.text("recompute-granularity")
    method, layers = reader.text("recompute-method"), reader.whole("recompute-num-layers")
    if granularity == "full":
        _recomputed_layers(reader, method, layers.value if layers else 1)
        return Entry("full", reader.origin("recompute-granularity"))
    if granularity is not None:
        return Entry("selective", reader.origin("recompute-granularity"))
    return Entry("none", "no --recompute-granularity", stated=False)


def _modules(reader: Reader) -> Entry:
    """Modules that are recomputed; those that the schema does not know are named."""
    text = reader.text("recompute-modules")
    if text is None:
        return Entry(["core_attn"], f"{DEFAULT} of selective recomputation", stated=False)
    asked = text.replace(",", " ").split()
    unknown = [name for name in asked if name not in _MODULES]
    if unknown:
        reader.note("recompute-modules", f"not expressed: {', '.join(unknown)}")
    return Entry([name for name in asked if name in _MODULES], reader.origin("recompute-modules"))


def _recomputed_layers(reader: Reader, method: str | None, layers: int) -> None:
    """Names the arguments by which some layers are recomputed, or several as one."""
    if method == "block":
        reason = f"not expressed: {layers} of the layers of a stage are recomputed, the scenario assumes all"
    elif layers != 1:
        reason = (
            f"not expressed: {layers} of the layers of a stage at a time are recomputed as one, "
            "the scenario assumes all, each on its own"
        )
    else:
        return
    for name in ("recompute-method", "recompute-num-layers"):
        if name in reader:
            reader.note(name, reason)


def _index_loss(reader: Reader) -> Entry:
    text = reader.text("dsa-indexer-loss-coeff")
    restricted = reader.flag("dsa-indexer-use-sparse-loss")
    try:
        weighs = text is not None and float(text) > 0
    except ValueError:
        weighs = False
    if not weighs:
        return Entry("none", "no --dsa-indexer-loss-coeff above 0", stated=text is not None)
    if not restricted.value:
        reader.note(
            "dsa-indexer-loss-coeff", "a loss over all keys is not expressed: that of the selected set is assumed"
        )
    return Entry("sparse", reader.origin("dsa-indexer-loss-coeff"))


def _systems(reader: Reader) -> Fields:
    """Switches that every system of the comparison takes over."""
    fields: Fields = {}
    kind, deepep = reader.text("moe-token-dispatcher-type"), reader.flag("moe-enable-deepep")
    flex = reader.text("moe-flex-dispatcher-backend")
    if deepep.value or (kind == "flex" and flex in (None, "deepep")):
        name = "moe-enable-deepep" if deepep.value else "moe-token-dispatcher-type"
        fields["dispatcher"] = Entry("deepep", reader.origin(name))
    elif kind == "alltoall":
        fields["dispatcher"] = Entry("alltoall", reader.origin("moe-token-dispatcher-type"))
    elif kind is not None:
        reader.note("moe-token-dispatcher-type", "not expressed: alltoall is assumed")
    backend = reader.text("dsa-kernel-backend")
    if backend in _BACKENDS:
        fields["backend"] = Entry(_BACKENDS[str(backend)], reader.origin("dsa-kernel-backend"))
    return fields
