"""What a group of checks has to reach."""

from __future__ import annotations

from typing import Any


def bar(
    name: str, value: float, *, at_least: float | None = None, at_most: float | None = None, unit: str = "fraction"
) -> dict[str, Any]:
    """A bar and what was reached; ``passed`` is false for NaN too.

    Args:
        name: of what is measured, as it stands in a sentence.
        unit: ``fraction``, 1 is 100 %, or ``count``.
    """
    passed = value == value and (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
    return {
        "id": name,
        "value": value,
        "at_least": at_least,
        "at_most": at_most,
        "unit": unit,
        "passed": bool(passed),
    }
