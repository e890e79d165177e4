"""The controls of a page, from the schema of scenarios: every field that holds one value, with what it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass

from hyscale_model import catalog
from hyscale_model.batch import generic, value_at
from hyscale_model.report.fields import label_of
from hyscale_model.scenario.fields import FieldType, bare, bounds, choices, field_names, field_type
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.scalars import written
from hyscale_model.scenario.schema import Assumption, Scenario, System

# Sizes people double and halve.
DOUBLED = (
    "workload.sequence_length",
    "workload.global_batch_size",
    "layout.tp",
    "layout.pp",
    "layout.cp",
    "layout.ep",
    "cluster.nodes",
)
# Sections in the order of a page; the first of them are open.
SECTIONS = ("workload", "layout", "training", "cluster", "model")
OPEN = ("workload", "layout")
# A whole number with no more values than this is a list to choose from.
_FEW = 8
_SIZES = tuple(str(1 << power) for power in range(9, 18))


@dataclass(frozen=True, slots=True)
class Control:
    """One field that a page can change.

    Attributes:
        path: as ``--set`` takes it.
        label: how people call it.
        value: the scenario's own value, as text.
        options: values to choose from; none: a number is typed.
        hint: what the field accepts and where the value comes from.
        doubled: whether there are buttons that double and halve it.
    """

    path: str
    label: str
    value: str
    options: tuple[str, ...]
    hint: str
    doubled: bool = False


@dataclass(frozen=True, slots=True)
class Spread:
    """An assumption that a page can narrow or widen.

    Attributes:
        path: of the field, ``systems.*`` where every system shares it.
        label: how people call it.
        choices: the choices as text, or none.
        ends: lower and upper end of a range, or none.
        limits: how far a range can be widened.
        reason: why the value is not known.
    """

    path: str
    label: str
    choices: tuple[str, ...]
    ends: tuple[float, float] | None
    limits: tuple[float, float] | None
    reason: str


def sections(resolved: Resolved) -> dict[str, list[Control]]:
    """The controls of each section of a scenario, names of catalogue entries first."""
    scenario = resolved.scenario
    found: dict[str, list[Control]] = {}
    for section in SECTIONS:
        target = getattr(scenario, section)
        controls = [
            _named(path, kind, name, resolved)
            for path, kind, name in (
                ("model", "models", scenario.model.name),
                ("cluster", "clusters", scenario.cluster.name),
                ("cluster.gpu", "gpus", scenario.cluster.gpu.name),
            )
            if path.partition(".")[0] == section
        ]
        controls += _fields(type(target), section, resolved)
        found[section] = controls
    return found


def switches(resolved: Resolved, system: System) -> list[Control]:
    """The controls of one system's switches."""
    return list(_fields(System, f"systems.{system.name}", resolved))


def spreads(scenario: Scenario) -> list[Spread]:
    """The assumptions of a scenario, those that every system shares once."""
    found: dict[str, Spread] = {}
    for item in scenario.assumptions:
        path = generic(item.path)
        field = path.rpartition(".")[2]
        found.setdefault(
            path,
            Spread(
                path,
                label_of(field),
                tuple(written(choice) for choice in item.choices or ()),
                item.range,
                _limits(item, scenario),
                item.reason,
            ),
        )
    return list(found.values())


def _named(path: str, kind: str, name: str, resolved: Resolved) -> Control:
    options = catalog.names(kind)
    hint = _hint(resolved, f"{path}.name", f"a {kind.removesuffix('s')} of the catalogue")
    # A model or cluster of the user's own has no entry; its name stands for itself.
    offered = options if name in options else (name, *options)
    return Control(path, label_of(path.rpartition(".")[2]), name, offered, hint)


def _fields(owner: type, prefix: str, resolved: Resolved) -> Iterator[Control]:
    for name in field_names(owner):
        field = FieldType(owner, name)
        options = _options(field)
        # With one value there is nothing to choose; what is published about a model is no input.
        if name == "name" or name.startswith("published_") or len(options) == 1:
            continue
        path = f"{prefix}.{name}"
        held = value_at(resolved.scenario, path)
        if not (options or field.is_number()) or is_dataclass(held):
            continue
        value = written(held)
        if options and value not in options:
            options = (value, *options)
        hint = _hint(resolved, path, field.describe())
        yield Control(path, label_of(name), value, options, hint, path in DOUBLED)


def _options(field: FieldType) -> tuple[str, ...]:
    """The values to choose from; a number that may also be a word is offered in the sizes people use."""
    annotation = field.annotation
    named = choices(annotation)
    if named:
        return (*named, *_SIZES) if field.is_whole() else named
    if bare(annotation) is bool:
        return ("true", "false")
    limits = bounds(annotation)
    if field.is_whole() and {"ge", "le"} <= set(limits) and limits["le"] - limits["ge"] < _FEW:
        return tuple(str(value) for value in range(limits["ge"], limits["le"] + 1))
    return ()


def _hint(resolved: Resolved, path: str, accepts: str) -> str:
    origin = resolved.origins.get(path)
    return f"{accepts}. {origin.origin}: {origin.detail}" if origin else accepts


def _limits(item: Assumption, scenario: Scenario) -> tuple[float, float] | None:
    """A range may grow by its own width on either side, as far as the field accepts."""
    if item.range is None:
        return None
    low, high = item.range
    target = field_type(item.path, [system.name for system in scenario.systems], scenario.model.model_type)
    allowed = bounds(target.annotation)
    least = allowed.get("ge", allowed.get("gt", 0.0) or (high - low) / 100)
    most = allowed.get("le", high + (high - low))
    # Ends with as many decimals as people write.
    return round(max(least, low - (high - low)), 6), round(min(most, high + (high - low)), 6)
