"""A scenario as it is stated, with overrides laid on it, as YAML again: names stay names, nothing is filled in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from hyscale_model.scenario.load import load, loads
from hyscale_model.scenario.overrides import apply_overrides, select_systems
from hyscale_model.scenario.resolve import inherit
from hyscale_model.scenario.schema import Scenario


def stated_yaml(
    source: str | Path,
    *,
    overrides: Sequence[str] = (),
    systems: Sequence[str] = (),
    text: str | bytes | None = None,
) -> str:
    """The text of a scenario with its overrides, and with what it extends in it; comments are lost.

    Takes what ``read_scenario`` takes and raises what it raises, but checks names and values no further.
    """
    document = load(source) if text is None else loads(text, str(source))
    root = inherit(document.root, text is None)
    root, _ = apply_overrides(select_systems(root, systems), overrides)
    stated = root.plain()
    order = {name: stated[name] for name in Scenario.__dataclass_fields__ if name in stated}
    return yaml.safe_dump(order, sort_keys=False, allow_unicode=True, width=120)
