"""From a scenario file to a ``Scenario`` with the origin of every value."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hyscale_model import catalog
from hyscale_model.catalog import measured
from hyscale_model.errors import InputError
from hyscale_model.prediction import Origin
from hyscale_model.scenario.assumptions import assumed_paths, check_variables
from hyscale_model.scenario.convert import to_scenario
from hyscale_model.scenario.documents import expand_documents
from hyscale_model.scenario.load import load, loads
from hyscale_model.scenario.node import Node
from hyscale_model.scenario.origins import origins
from hyscale_model.scenario.overrides import apply_overrides, select_systems
from hyscale_model.scenario.problems import Problems
from hyscale_model.scenario.references import expand, merge
from hyscale_model.scenario.scalars import show
from hyscale_model.scenario.schema import Cluster, Scenario
from hyscale_model.scenario.validate import check_scenario

_EXPERIMENT = ("model", "cluster", "workload", "scope")


@dataclass(frozen=True, slots=True)
class Resolved:
    """A scenario in which every name is resolved and every value checked.

    Attributes:
        scenario: the scenario.
        origins: dotted path -> origin of every value.
        file: the name of the file it came from.
        notes: what files it refers to say and it does not express.
        restated: paths of the experiment itself (model, cluster, workload, scope) that overrides set, other than
            those the file leaves open; results reported for the file then belong to another experiment.
        unresolved: the scenario as read, whether it may refer to files, and the overrides laid on it.
        links_open: whether links inside a node are as the profile measured them, where it did: none is stated, drawn
            or swept.
    """

    scenario: Scenario
    origins: dict[str, Origin]
    file: str
    notes: tuple[str, ...] = ()
    restated: tuple[str, ...] = ()
    unresolved: tuple[Node, bool, tuple[str, ...]] | None = field(default=None, repr=False, compare=False)
    links_open: bool = False

    def linked(self, scenario: Scenario) -> Scenario:
        """This scenario with some fields replaced, with the links inside a node that are then right."""
        return _linked(scenario) if self.links_open else scenario

    def again(self, overrides: Sequence[str], without: Collection[str] = ()) -> Resolved:
        """The same scenario with further overrides, ``path=value`` each; earlier ones of ``without`` are taken back.

        Raises:
            InputError: as ``read_scenario``.
        """
        assert self.unresolved is not None
        root, allow_files, before = self.unresolved
        kept = [text for text in before if text.partition("=")[0].strip() not in without]
        return _resolve(root, self.file, allow_files, (*kept, *overrides))


def read_scenario(
    source: str | Path,
    *,
    overrides: Sequence[str] = (),
    systems: Sequence[str] = (),
    text: str | bytes | None = None,
) -> Resolved:
    """Reads, resolves and checks a scenario.

    Args:
        source: the file; with ``text``, only the name that messages use.
        overrides: ``path=value`` each, laid on the file in order. A field set this way is neither drawn nor swept.
        systems: names of the systems to keep, in this order; those the file lacks come from the catalogue.
        text: the contents in place of the file's. Such a scenario cannot refer to other files.

    Raises:
        InputError: the first thing by line that is wrong, with its place and what would be right.
    """
    document = load(source) if text is None else loads(text, str(source))
    root = inherit(document.root, text is None)
    return _resolve(select_systems(root, systems), document.file, text is None, overrides)


def _resolve(root: Node, file: str, allow_files: bool, overrides: Sequence[str]) -> Resolved:
    problems = Problems(file)
    unresolved = root, allow_files, tuple(overrides)
    root, pinned = apply_overrides(root, overrides)
    root = expand(root, problems, allow_files)
    root = expand_documents(root, problems, allow_files)
    assumed = assumed_paths(root)
    restated = sorted(path for path in pinned if path.partition(".")[0] in _EXPERIMENT and path not in assumed)
    root = check_variables(root, pinned, problems)
    scenario = to_scenario(root, problems)
    problems.raise_first()
    assert scenario is not None
    check_scenario(scenario, root)
    found = origins(scenario, root)
    own = measured.for_gpu(scenario.cluster.gpu.name) if root.child("profile") is None else None
    if own is not None:
        scenario = replace(scenario, profile=own)
        found["profile"] = Origin("assumed", f"measured on {scenario.cluster.gpu.name}: the best there is for it")
    links_open = _links_are_open(scenario, root)
    if links_open:
        scenario = _linked(scenario)
        origin = Origin("measured", f"collectives of profile {scenario.profile}")
        found |= {f"cluster.{name}": origin for name in _measured_links(scenario)}
    return Resolved(scenario, found, file, tuple(problems.notes), tuple(restated), unresolved, links_open)


def _links_are_open(scenario: Scenario, root: Node) -> bool:
    """Whether nobody says what links inside a node reach; one value stands for all, since they were fitted together."""
    stated = root.child("cluster")
    varied = {*(assumption.path for assumption in scenario.assumptions), *scenario.sweep, *scenario.zip}
    return stated is not None and not any(stated.child(name) or f"cluster.{name}" in varied for name in measured.LINKS)


def _measured_links(scenario: Scenario) -> dict[str, float]:
    gpu = scenario.cluster.gpu.name
    if gpu not in catalog.names("gpus"):
        return {}
    # The share is of what the GPU that was measured can: a scenario that asks for faster links keeps it.
    peak = catalog.entry("gpus", gpu).values["nvlink_bytes_per_s"]
    return measured.links(scenario.profile, gpu, scenario.cluster.gpus_per_node, peak)


def _linked(scenario: Scenario) -> Scenario:
    """The scenario with links of a node as its profile measured them over as many of the same GPUs, or as assumed."""
    links: dict[str, Any] = {each.name: each.default for each in fields(Cluster) if each.name in measured.LINKS}
    return replace(scenario, cluster=replace(scenario.cluster, **links | _measured_links(scenario)))


def inherit(root: Node, allow_files: bool, seen: tuple[Path, ...] = ()) -> Node:
    """The scenario laid on the one it extends."""
    extends = root.child("extends")
    if extends is None:
        return root
    name = extends.value

    def error(problem: str, expected: str) -> InputError:
        return InputError(problem, extends.file, extends.line, "extends", expected)

    if not isinstance(name, str) or not name:
        raise error(f"this is {show(extends.plain())}", "the path of another scenario")
    if not allow_files:
        raise error("a scenario given as text cannot refer to other files", "all of the scenario in one text")
    here = Path(extends.file)
    path = here.parent / name
    seen = (*seen, _identity(here))
    if _identity(path) in seen:
        chain = " -> ".join([*(file.name for file in seen), path.name])
        raise error(f"scenarios extend each other: {chain}", "no cycle")
    try:
        base = load(path)
    except InputError as fault:
        if fault.line is not None:
            raise
        raise replace(
            fault, problem=f"{fault.file}: {fault.problem}", file=extends.file, line=extends.line, field="extends"
        ) from None
    return merge(inherit(base.root, True, seen), root.without("extends"))


def _identity(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path
