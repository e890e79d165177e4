"""Every layout a model can have on a cluster, in batches of one structure for all systems that share it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyscale_model.batch import assign
from hyscale_model.layers.selection import KEEPS_INDICES
from hyscale_model.scenario.fields import choices, hints
from hyscale_model.scenario.model_rules import expert_field
from hyscale_model.scenario.schema import Scenario, System, Training
from hyscale_model.studies.points import Chunk

# Fields that a search decides, in the order in which they are shown.
ARRAYS = ("layout.vpp", "layout.cp", "layout.ep", "workload.micro_batch_size")
STRUCTURE = ("layout.tp", "layout.pp", "layout.schedule", "training.recompute")
STORAGE = "index_storage"
# Those of Megatron-LM; another one is for a system that has it to ask for.
SCHEDULES = ("1f1b", "interleaved")
# Read by rules like those of the layout and of the workload.
SETTLED = ("training.recompute", "cluster.nodes", "cluster.gpus_per_node")
# Values evaluated at once; see ``sweep.CHUNK_VALUES``.
CHUNK_POINTS = 8192


@dataclass(frozen=True, slots=True)
class Candidates:
    """Layouts of one structure.

    Attributes:
        scenario: with that structure and every system that has these layouts to choose from; one that keeps indices is
            there twice, with each storage of them.
        values: what varies, each ``[count]``.
    """

    scenario: Scenario
    values: dict[str, np.ndarray]

    @property
    def count(self) -> int:
        """How many."""
        return len(self.values[ARRAYS[0]])

    def alone(self, system: int) -> Candidates:
        """The same layouts for one of the systems."""
        return replace(self, scenario=settled(self.scenario, [self.scenario.systems[system]]))

    def chunk(self, places: np.ndarray, draws: int, seed: int) -> Chunk:
        """Some of them as a chunk."""
        return Chunk(
            scenario=self.scenario,
            systems=tuple(system.name for system in self.scenario.systems),
            paths=ARRAYS,
            fixed={},
            values={path: column[places][:, None] for path, column in self.values.items()},
            points=len(places),
            draws=draws,
            seed=seed,
            screened=True,
        )

    def at(self, place: int, system: int) -> Scenario:
        """The scenario with one of them and one of the systems."""
        values = {path: column[place].item() for path, column in self.values.items()}
        return assign(self.alone(system).scenario, values)


def settled(scenario: Scenario, systems: Sequence[System]) -> Scenario:
    """The scenario with only these systems and without assumptions about what a layout must divide or a search decides.

    Those fields keep the scenario's own values: a batch that is drawn would not fit every layout.
    """
    names = [f"systems.{system.name}." for system in systems]

    def stays(path: str) -> bool:
        if path.startswith("systems."):
            return any(path.startswith(name) for name in names) and not path.endswith(f".{STORAGE}")
        return path.partition(".")[0] not in ("layout", "workload") and path not in SETTLED

    kept = tuple(each for each in scenario.assumptions if stays(each.path))
    return replace(scenario, systems=tuple(systems), assumptions=kept)


def divisors(number: int) -> list[int]:
    """Divisors in ascending order."""
    return [each for each in range(1, number + 1) if number % each == 0]


def candidates(scenario: Scenario, systems: Sequence[System]) -> Iterator[Candidates]:
    """Every way to spread systems over the GPUs: what divides what must divide; rules may still speak against some.

    Varies tp inside a node, pp and vpp up to the layers, cp, ep over the routed experts, the micro-batch, recomputation
    and, where indices are kept, their storage. A field that a system itself sets stays, and so does every other.
    Systems that set the same fields come together: what they share is evaluated once.
    """
    alike: dict[str, list[System]] = {}
    for system in systems:
        alike.setdefault(repr((system.layout, system.training)), []).append(system)
    for group in alike.values():
        yield from _candidates(scenario, group)


def _candidates(scenario: Scenario, systems: Sequence[System]) -> Iterator[Candidates]:
    """Layouts of systems that set the same fields of layout and training."""
    cluster, model = scenario.cluster, scenario.model
    world, layers = cluster.nodes * cluster.gpus_per_node, model.num_hidden_layers
    own_layout, own_training = systems[0].layout, systems[0].training
    experts = expert_field(model)
    batch = scenario.workload.global_batch_size

    def options(name: str, found: Sequence[int]) -> Sequence[int]:
        return [own_layout[name]] if name in own_layout else found

    recomputes = [own_training["recompute"]] if "recompute" in own_training else choices(hints(Training)["recompute"])
    case = settled(scenario, [stored for system in systems for stored in _stored(system)])
    for tp in options("tp", divisors(cluster.gpus_per_node)):
        for pp in options("pp", [each for each in divisors(world // tp) if each <= layers]):
            if world % (tp * pp):
                continue
            rows = np.array(
                [
                    (vpp, cp, ep, micro)
                    for cp in options("cp", divisors(world // (tp * pp)))
                    if world % (tp * pp * cp) == 0 and batch % (world // (tp * pp * cp)) == 0
                    for micro in divisors(batch // (world // (tp * pp * cp)))
                    for ep in options("ep", _expert_parallel(scenario, world // pp, experts))
                    for vpp in options("vpp", range(1, layers // pp + 1 if pp > 1 else 2))
                ],
                dtype=np.int64,
            ).reshape(-1, len(ARRAYS))
            for schedule in [own_layout["schedule"]] if "schedule" in own_layout else SCHEDULES:
                chosen = rows[_runs(schedule, pp, rows, world // (tp * pp), batch)]
                if not len(chosen):
                    continue
                for recompute in recomputes:
                    structure = dict(zip(STRUCTURE, (tp, pp, schedule, recompute), strict=True))
                    # An own split of the layers belongs to the scenario's own pipeline.
                    if pp != scenario.layout.pp:
                        structure["layout.stage_layers"] = None
                    yield Candidates(assign(case, structure), dict(zip(ARRAYS, chosen.T, strict=True)))


def _runs(schedule: str, pp: int, rows: np.ndarray, replicas: int, batch: int) -> np.ndarray:
    """Which rows a schedule can run at all; others have no order of passes.

    Args:
        schedule: of the layout; ``pp``: its stages.
        rows: (vpp, cp, ep, micro-batch) of each candidate.
        replicas: context ranks x data-parallel ranks; ``batch``: sequences of a step.
    """
    chunks: np.ndarray = (rows[:, 0] > 1) == (schedule == "interleaved")
    if schedule in ("1f1b", "interleaved"):
        return chunks
    if schedule == "zero_bubble":
        return chunks & (pp > 1)
    micro_batches = batch // (replicas // rows[:, 1] * rows[:, 3])
    return chunks & (pp % 2 == 0) & (micro_batches % 2 == 0) & (micro_batches >= 2 * pp)


def _stored(system: System) -> list[System]:
    """A system with each storage of what it keeps."""
    if system.recompute_selection not in KEEPS_INDICES:
        return [system]
    return [replace(system, index_storage="device"), replace(system, index_storage="host")]


def _expert_parallel(scenario: Scenario, stage: int, experts: str | None) -> list[int]:
    if experts is None:
        return [1]
    ranks = stage // scenario.layout.etp if stage % scenario.layout.etp == 0 else 0
    return [each for each in divisors(ranks) if getattr(scenario.model, experts) % each == 0] if ranks else []


def describe(case: Scenario) -> dict[str, Any]:
    """What a search decides, of a scenario with one system."""
    layout, cluster, system = case.layout, case.cluster, case.systems[0]
    world = cluster.nodes * cluster.gpus_per_node
    return {
        "tp": layout.tp,
        "pp": layout.pp,
        "vpp": layout.vpp,
        "cp": layout.cp,
        "ep": layout.ep,
        "dp": world // (layout.tp * layout.pp * layout.cp),
        "micro_batch_size": case.workload.micro_batch_size,
        "recompute": case.training.recompute,
        STORAGE: system.index_storage,
    }
