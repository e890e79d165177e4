"""Refuses layouts that cannot run, with the arithmetic that shows why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.scenario.fields import OVERRIDES, FieldType, assign, hints, suggest
from hyscale_model.scenario.model_rules import (
    check_context,
    check_heads,
    check_model,
    check_recompute,
    check_shared_index,
)
from hyscale_model.scenario.node import Node
from hyscale_model.scenario.refuse import refuse
from hyscale_model.scenario.scalars import show
from hyscale_model.scenario.schema import Layout, Scenario, System


def case_for(scenario: Scenario, system: System) -> Scenario:
    """The scenario as one system runs it: with that system's own layout and training fields.

    Raises:
        InputError: the system names a field that does not exist, or gives it a value it does not accept.
    """
    sections: dict[str, Any] = {}
    for (_, section), owner in OVERRIDES.items():
        changes = {}
        for key, value in getattr(system, section).items():
            field = f"systems.{system.name}.{section}.{key}"
            if key not in hints(owner):
                raise InputError(f"unknown key {key!r}", field=field, expected=suggest(str(key), hints(owner)))
            target = FieldType(owner, key)
            try:
                changes[key] = target.accept(value)
            except ValueError:
                raise InputError(f"{show(value)} is not accepted here", None, None, field, target.describe()) from None
        if changes:
            sections[section] = replace(getattr(scenario, section), **changes)
    return replace(scenario, **sections) if sections else scenario


def check_layout(scenario: Scenario, system: System) -> None:
    """Checks that the model, cluster, layout and batch of one system fit together.

    All fields must be single values, not the arrays of a sweep. Rules:

    - the sizes of the model fit together and to the sequence, as its family needs (``check_model``);
    - tp * pp * cp divides the number of GPUs, dp is the quotient; tp stays inside a node and divides the heads;
    - ep * etp divides the GPUs of a pipeline stage, ep the routed experts; a dense model has neither;
    - each context rank has whole chunks of the sequence (two in zigzag order) that tp can cut;
    - dp * micro_batch_size divides the batch; the interleaved schedule is that of vpp > 1, needs pp > 1 and a multiple
      of pp micro-batches (Megatron-LM's rule), dualpipe an even pp and an even number of at least 2 pp micro-batches;
    - every virtual stage has a layer; ``stage_layers`` lists either the pp stages, each of which vpp then divides, or
      the pp * vpp virtual stages in the order in which a token passes them, and sums to the layers of the model;
    - where layers share an index, each virtual stage begins on one that computes it.

    Raises:
        InputError: one of them is broken; ``field`` is the one to change.
    """
    case = case_for(scenario, system)
    check_model(case, system)
    data_parallel = _check_world(case, system)
    check_heads(case, system)
    _check_experts(case, system)
    _check_instances(case, system, data_parallel)
    _check_shared_experts(case, system)
    _check_sequence(case, system)
    _check_batch(case, system, data_parallel)
    _check_stages(case, system)
    check_shared_index(case, system)
    _check_precision(case, system)
    _check_offload(case, system)
    check_recompute(case, system)
    check_context(case, system)
    if system.selection == "hytopk" and system.recompute_selection == "keep_scores":
        expected = "rerun, keep_indices, skip or replay"
        refuse(system, f"systems.{system.name}.recompute_selection", "hytopk has no scores to keep", expected)


def check_scenario(scenario: Scenario, root: Node) -> None:
    """``check_layout`` for every system, and for every choice of every assumption with all else nominal.

    Raises:
        InputError: at the line of the field, or of the choice.
    """
    for system in scenario.systems:
        try:
            check_layout(scenario, system)
        except InputError as error:
            node = root.nearest(_path(error.field or "", scenario))
            raise replace(error, file=node.file, line=node.line) from None
    for index, assumption in enumerate(scenario.assumptions):
        for number, choice in enumerate(assumption.choices or ()):
            drawn = assign(scenario, assumption.path, choice)
            for system in drawn.systems:
                try:
                    check_layout(drawn, system)
                except InputError as error:
                    node = root.nearest(("assumptions", index, "choices", number))
                    raise InputError(
                        f"the choice {choice} of {assumption.path} is not possible: {error.problem}",
                        node.file,
                        node.line,
                        f"assumptions.{index}.choices",
                        error.expected,
                    ) from None


def _path(field: str, scenario: Scenario) -> Sequence[str | int]:
    section, _, rest = field.partition(".")
    if section != "systems":
        return field.split(".")
    for index, system in enumerate(scenario.systems):
        if rest.startswith(system.name + "."):
            return ("systems", index, *rest.removeprefix(system.name + ".").split("."))
    return ("systems",)


def _culprit(factors: dict[str, int], whole: int) -> str:
    """The factor to blame for a product that does not divide ``whole``: one that fails alone, else the largest."""
    return max(factors, key=lambda name: (whole % factors[name] != 0, factors[name]))


def _product(factors: dict[str, int]) -> tuple[int, str]:
    product = 1
    for factor in factors.values():
        product *= factor
    names = " x ".join(name.rpartition(".")[2] for name in factors)
    return product, f"{names} = {' x '.join(map(str, factors.values()))} = {product}"


def _check_world(case: Scenario, system: System) -> int:
    layout, cluster = case.layout, case.cluster
    world = cluster.nodes * cluster.gpus_per_node
    factors = {"layout.tp": layout.tp, "layout.pp": layout.pp, "layout.cp": layout.cp}
    product, shown = _product(factors)
    if world % product:
        problem = f"{shown} does not divide the {world} GPUs ({cluster.nodes} x {cluster.gpus_per_node})"
        refuse(system, _culprit(factors, world), problem, f"tp x pp x cp that divides {world}; the quotient is dp")
    if layout.tp > cluster.gpus_per_node:
        problem = f"tp = {layout.tp} is more than the {cluster.gpus_per_node} GPUs of a node"
        refuse(system, "layout.tp", problem, f"at most {cluster.gpus_per_node}")
    return world // product


def _check_instances(case: Scenario, system: System, data_parallel: int) -> None:
    """Instances of the distributed optimizer divide the ranks that share its state, those of experts too."""
    layout, field = case.layout, "layout.num_distributed_optimizer_instances"
    instances = layout.num_distributed_optimizer_instances
    if instances == 1:
        return
    if not layout.zero:
        refuse(
            system, field, f"{instances} instances of a distributed optimizer, and zero is 0", "1, or zero of 1 to 3"
        )
    replicas = data_parallel * layout.cp
    holders = replicas * layout.tp // (layout.ep * layout.etp)
    for ranks, what in ((replicas, "dp x cp"), (holders, "dp x cp x tp / (ep x etp)")):
        if ranks % instances:
            refuse(system, field, f"{instances} does not divide {what} = {ranks}", f"a divisor of {ranks}")


def _check_experts(case: Scenario, system: System) -> None:
    layout, cluster = case.layout, case.cluster
    stage = cluster.nodes * cluster.gpus_per_node // layout.pp
    factors = {"layout.ep": layout.ep, "layout.etp": layout.etp}
    product, shown = _product(factors)
    if stage % product:
        problem = f"{shown} does not divide the {stage} GPUs of a pipeline stage"
        refuse(system, _culprit(factors, stage), problem, f"ep x etp that divides {stage}")


def _check_shared_experts(case: Scenario, system: System) -> None:
    """Shared experts run beside plain all-to-all alone, and beside nothing else (Megatron-LM's rule)."""
    layout, field = case.layout, "layout.moe_shared_expert_overlap"
    if not layout.moe_shared_expert_overlap:
        return
    if system.dispatcher != "alltoall":
        refuse(system, field, f"the dispatcher is {system.dispatcher}", "false, or dispatcher: alltoall")
    if layout.etp > 1:
        refuse(system, field, f"etp = {layout.etp} gathers tokens between dispatch and experts", "false, or etp = 1")
    if layout.overlap_moe_expert_parallel_comm or layout.schedule == "dualpipe":
        refuse(system, field, "the exchange runs beside another micro-batch already", "false")


def _check_sequence(case: Scenario, system: System) -> None:
    layout, length = case.layout, case.workload.sequence_length
    # One context rank has nothing to balance, so its sequence is not cut.
    chunks = 2 if layout.cp_order == "zigzag" and layout.cp > 1 else 1
    parts = layout.cp * layout.tp * chunks
    if length % parts:
        zigzag = f" x {chunks} zigzag chunks" if chunks > 1 else ""
        problem = f"{length} tokens cannot be cut into cp x tp{zigzag} = {parts} equal parts"
        refuse(system, "workload.sequence_length", problem, f"a multiple of {parts}")


def _check_batch(case: Scenario, system: System, data_parallel: int) -> None:
    layout, workload = case.layout, case.workload
    at_once = data_parallel * workload.micro_batch_size
    if workload.global_batch_size % at_once:
        problem = (
            f"{workload.global_batch_size} sequences are not a multiple of dp x micro_batch_size = "
            f"{data_parallel} x {workload.micro_batch_size} = {at_once}"
        )
        refuse(system, "workload.global_batch_size", problem, f"a multiple of {at_once}")
    interleaved = layout.schedule == "interleaved"
    if interleaved != (layout.vpp > 1):
        problem = f"the schedule is {layout.schedule} and vpp = {layout.vpp}"
        expected = "vpp above 1, or 1f1b" if interleaved else "interleaved, or vpp = 1"
        refuse(system, "layout.schedule", problem, expected)
    micro_batches = workload.global_batch_size // at_once
    if layout.schedule in ("zero_bubble", "dualpipe") and layout.pp == 1:
        problem = f"the schedule is {layout.schedule} with one pipeline stage"
        refuse(system, "layout.schedule", problem, "pp above 1, or 1f1b")
    if layout.schedule == "dualpipe":
        _check_dualpipe(layout, system, micro_batches, at_once)
    if not interleaved:
        return
    if layout.pp == 1:
        refuse(system, "layout.vpp", f"vpp = {layout.vpp} with one pipeline stage", "pp above 1, or vpp = 1")
    # Fewer micro-batches than stages leave the pipeline unfilled, but they run.
    if micro_batches > layout.pp and micro_batches % layout.pp:
        problem = (
            f"the interleaved schedule needs a multiple of pp = {layout.pp} micro-batches, "
            f"and there are {workload.global_batch_size} / {at_once} = {micro_batches}"
        )
        multiple = at_once * layout.pp
        refuse(system, "workload.global_batch_size", problem, f"a multiple of {multiple}, or 1f1b and vpp = 1")


def _check_dualpipe(layout: Layout, system: System, micro_batches: int, at_once: int) -> None:
    """Ranks in pairs, micro-batches from both ends, and enough of them to fill the pipeline (deepseek-ai/DualPipe)."""
    if layout.pp % 2:
        refuse(system, "layout.pp", f"dualpipe pairs its ranks, and pp = {layout.pp}", "an even pp")
    if micro_batches % 2 or micro_batches < 2 * layout.pp:
        problem = (
            f"dualpipe needs an even number of at least 2 x pp = {2 * layout.pp} micro-batches, "
            f"and there are {micro_batches}"
        )
        expected = f"a multiple of {2 * at_once} of at least {2 * layout.pp * at_once}"
        refuse(system, "workload.global_batch_size", problem, expected)
    if layout.overlap_moe_expert_parallel_comm:
        problem = "dualpipe hides the exchange of tokens itself"
        refuse(system, "layout.overlap_moe_expert_parallel_comm", problem, "false")


def _check_stages(case: Scenario, system: System) -> None:
    layout, layers = case.layout, case.model.num_hidden_layers
    virtual = layout.pp * layout.vpp
    if virtual > layers and (layout.stage_layers is None or len(layout.stage_layers) != virtual):
        field = "layout.vpp" if layout.pp <= layers else "layout.pp"
        problem = (
            f"pp x vpp = {layout.pp} x {layout.vpp} = {virtual} stages are more than the {layers} layers there are"
        )
        refuse(system, field, problem, f"pp x vpp of at most {layers}")
    stages = layout.stage_layers
    if stages is None:
        return
    field = "layout.stage_layers"
    if len(stages) not in (layout.pp, virtual):
        counts = (
            f"{layout.pp} numbers" if virtual == layout.pp else f"{layout.pp} numbers (stages) or {virtual} (virtual)"
        )
        refuse(system, field, f"{len(stages)} numbers for {layout.pp} stages", counts)
    if sum(stages) != layers:
        refuse(system, field, f"the stages have {sum(stages)} layers, the model {layers}", f"a sum of {layers}")
    if len(stages) == layout.pp:
        uneven = [count for count in stages if count % layout.vpp]
        if uneven:
            problem = f"vpp = {layout.vpp} does not divide the {uneven[0]} layers of a stage"
            refuse(system, field, problem, f"multiples of {layout.vpp}, or {virtual} numbers, one a virtual stage")


def _check_precision(case: Scenario, system: System) -> None:
    for name in ("precision", "index_precision"):
        if getattr(case.training, name) == "fp8" and case.cluster.gpu.fp8_flops is None:
            problem = f"{name} is fp8, and no fp8_flops is known for {case.cluster.gpu.name}"
            refuse(system, f"training.{name}", problem, "bf16, or cluster.gpu.fp8_flops")


def _check_offload(case: Scenario, system: System) -> None:
    """The host's optimizer is Adam; no more layers can leave than a rank has."""
    training, layout, layers = case.training, case.layout, case.model.num_hidden_layers
    if training.optimizer_cpu_offload and training.optimizer != "adam":
        problem = f"the host updates with adam alone, and the optimizer is {training.optimizer}"
        refuse(system, "training.optimizer_cpu_offload", problem, "false, or optimizer: adam")
    if training.cpu_offloading_num_layers * layout.pp > layers:
        problem = f"{training.cpu_offloading_num_layers} layers to offload, of {layers} over pp = {layout.pp} stages"
        refuse(system, "training.cpu_offloading_num_layers", problem, f"at most {layers // layout.pp}")
