"""Published runs: which there are, which belong together, and which of them rates may be fitted on.

Runs of one model in one layout are one family. A hash of its name puts every family on one side: global rates may be
fitted on ``fit``, ``held_out`` is reported untouched. The rule was committed before any run was compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from hyscale_model import catalog
from hyscale_model.checks.bars import bar
from hyscale_model.scenario.schema import Scenario

# Files of other groups, by how their names begin.
_PREFIXES = ("simumax-", "korthikanti-", "run-")
# What a reported metric is about -> the group it counts in.
GROUP_OF = {"memory": "memory"}
# What must agree for runs to be of one family, beside the model and its number of layers.
_LAYOUT = ("tp", "pp", "vpp", "cp", "ep", "etp", "zero")


def published_names() -> tuple[str, ...]:
    """Names of the catalogue's published runs."""
    return tuple(name for name in catalog.names("published") if name.startswith(_PREFIXES))


def group_of(metric: str) -> str:
    """``memory`` or ``runs``, by what a metric ``systems.<name>.<what>...`` is about."""
    parts = metric.split(".")
    return GROUP_OF.get(parts[2] if len(parts) > 2 else "", "runs")


def family_of(scenario: Scenario) -> str:
    """The model and the layout of a scenario, in words."""
    layout = " ".join(f"{name}{getattr(scenario.layout, name)}" for name in _LAYOUT)
    return f"{scenario.model.name} {scenario.model.num_hidden_layers} layers {layout}"


def split_of(family: str) -> str:
    """``fit`` or ``held_out``, by the first byte of the SHA-256 of the family's name."""
    return "fit" if sha256(family.encode()).digest()[0] % 2 == 0 else "held_out"


def series_of(name: str) -> str:
    """Whose rows they are, such as ``simumax``: a summary of their own beside that of the group."""
    return name.partition("-")[0]


# Bars of a group's rows: (series or split, what is measured, limit); a coverage has a lower and an upper one.
BARS: Mapping[str, tuple[tuple[str, str, float, float], ...]] = {
    "memory": (
        ("simumax", "mape", 0.0, 0.01),
        ("korthikanti", "mape", 0.0, 0.03),
        ("R09 memory", "mape", 0.0, 0.05),
    ),
    "runs": (
        ("held_out", "mape", 0.0, 0.08),
        ("held_out", "bias", -0.03, 0.03),
        ("held_out", "coverage", 0.7, 0.9),
    ),
}


NAMES = {"mape": "mean error", "bias": "bias", "coverage": "coverage of the 80 % interval"}


def bars_of(group: str, rows: Sequence[Mapping[str, Any]], summary_of: Any) -> list[dict[str, Any]]:
    """Each bar of a group with the value reached, see ``bars.bar``."""
    found = []
    for part, what, low, high in BARS.get(group, ()):
        chosen = [row for row in rows if part in (row["split"], row["series"], row["id"])]
        value = summary_of(chosen)[what] if chosen else None
        if value is None:
            continue
        found.append(bar(f"{NAMES[what]} of {part}", value, at_least=low or None, at_most=high))
    return found
