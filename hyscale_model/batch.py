"""Points and draws: a scenario with arrays in place of the numbers that vary.

Assumptions are drawn once and shared by every system, so that the interval of a ratio is the interval of the
ratio. Fields that change which operations exist are evaluated in groups of equal values; all other fields
vary inside one evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hyscale_model.rates.draws import Draws
from hyscale_model.scenario.schema import Assumption, Scenario, System

# Fields that formulas take as arrays. Everything else changes the structure of a layer or of the pipeline.
ARRAY_FIELDS = frozenset(
    {
        "workload.sequence_length",
        "workload.global_batch_size",
        "workload.micro_batch_size",
        "training.index_precision",
        "training.gradient_precision",
        "training.optimizer_state_precision",
        "training.moe_imbalance",
        "training.moe_load_variation",
        "cluster.host_bytes_per_s_per_gpu",
        "cluster.alltoall_efficiency",
        "layout.vpp",
        "layout.cp",
        "layout.ep",
        "layout.cp_order",
        "layout.index_balance",
        "systems.*.dispatcher",
        "cluster.nodes",
        "cluster.nic_gbit_per_gpu",
        "cluster.nic_efficiency",
        "cluster.nvlink_efficiency",
        "cluster.nvlink_latency_s",
        "cluster.nvlink_ramp_s_per_root_byte",
        "cluster.nic_latency_s",
        "cluster.usd_per_gpu_hour",
        "cluster.gpu.hbm_bytes_per_s",
        "cluster.gpu.memory_bytes",
        "cluster.gpu.nvlink_bytes_per_s",
    }
)

Values = Mapping[str, np.ndarray]


def value_at(scenario: Scenario, path: str) -> Any:
    """The value at a dotted path; ``systems.<name>.<switch>`` names a system."""
    section, *parts = path.split(".")
    node: Any = getattr(scenario, section)
    if section == "systems":
        rest = path.removeprefix("systems.")
        node = next(system for system in node if rest.startswith(f"{system.name}."))
        parts = rest.removeprefix(f"{node.name}.").split(".")
    for part in parts:
        node = node[part] if isinstance(node, Mapping) else getattr(node, part)
    return node


def assign(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """A copy of the scenario with some fields replaced, by scalars or arrays; nothing is validated."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        if not path.startswith("systems."):
            *parents, leaf = path.split(".")
            node = tree
            for part in parents:
                node = node.setdefault(part, {})
            node[leaf] = value
    if any(path.startswith("systems.") for path in values):
        tree["systems"] = tuple(with_switches(system, values) for system in scenario.systems)
    return _replace(scenario, tree) if tree else scenario


def _replace(node: Any, tree: Mapping[str, Any]) -> Any:
    return replace(node, **{k: _replace(getattr(node, k), v) if isinstance(v, Mapping) else v for k, v in tree.items()})


def with_switches(system: System, values: Mapping[str, Any]) -> System:
    """The system with the values of ``systems.<its name>.<switch or section.field>``."""
    prefix = f"systems.{system.name}."
    changes: dict[str, Any] = {}
    for path, value in values.items():
        if path.startswith(prefix):
            switch, _, field = path.removeprefix(prefix).partition(".")
            if field:
                section = changes.get(switch, getattr(system, switch))
                changes[switch] = {**section, field: value}
            else:
                changes[switch] = value
    return replace(system, **changes) if changes else system


def case_of(scenario: Scenario, system: System) -> Scenario:
    """The scenario as one system runs it: that system alone, its layout and training overrides applied."""
    return replace(
        scenario,
        systems=(system,),
        layout=replace(scenario.layout, **system.layout) if system.layout else scenario.layout,
        training=replace(scenario.training, **system.training) if system.training else scenario.training,
    )


def draw_assumptions(scenario: Scenario, draws: Draws) -> dict[str, np.ndarray]:
    """Values of every assumption, shape (1, draws + 1); the scenario's own value in the nominal column.

    Systems for which the same is assumed share one array: what depends on it is then built once for all of them.
    """
    found: dict[str, np.ndarray] = {}
    shared: dict[tuple[Any, ...], np.ndarray] = {}
    for item in scenario.assumptions:
        nominal = value_at(scenario, item.path)
        values = _draw(item, nominal, draws)
        if item.path.startswith("systems."):
            values = shared.setdefault((generic(item.path), *values[0].tolist()), values)
        found[item.path] = values
    return found


def _draw(item: Assumption, nominal: Any, draws: Draws) -> np.ndarray:
    # One draw of a switch for all systems: they differ in what is compared, not in what is unknown.
    name = f"assumption.{generic(item.path)}"
    if item.range is not None:
        low, high = item.range
        values = low + (high - low) * draws.uniform(name)
        values[0, 0] = nominal
        return values
    assert item.choices is not None
    return draws.choose(name, item.choices, item.weights, nominal)


def generic(path: str) -> str:
    """A path with ``*`` in place of the name of a system."""
    return f"systems.*.{path.rpartition('.')[2]}" if path.startswith("systems.") else path


def split_structure(values: Values, draws: Draws) -> Iterator[tuple[dict[str, Any], Draws]]:
    """Groups of draws with equal structural values: (field values of the group, its draws).

    Structural fields become scalars; the others keep the group's columns, or their one column.

    Raises:
        ValueError: a structural field varies over points; such points are batches of their own.
    """
    structural = [path for path in values if generic(path) not in ARRAY_FIELDS]
    if not structural:
        yield dict(values), draws
        return
    for path in structural:
        if values[path].shape[0] > 1:
            raise ValueError(f"{path} changes which operations exist, so it cannot vary inside a batch of points")
    rows = list(zip(*(np.broadcast_to(values[p], (1, draws.width))[0].tolist() for p in structural), strict=True))
    for row in dict.fromkeys(rows):
        columns = [index for index, other in enumerate(rows) if other == row]
        kept = {id(array): array[:, columns] if array.shape[1] > 1 else array for array in values.values()}
        group = {path: kept[id(array)] for path, array in values.items() if path not in structural}
        group.update(zip(structural, row, strict=True))
        yield group, replace(draws, columns=tuple(columns))
