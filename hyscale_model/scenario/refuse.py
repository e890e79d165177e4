"""How a check across fields says no."""

from __future__ import annotations

from typing import NoReturn

from hyscale_model.errors import InputError
from hyscale_model.scenario.fields import OVERRIDES
from hyscale_model.scenario.schema import System


def refuse(system: System, field: str, problem: str, expected: str) -> NoReturn:
    """Refuses the value of a field for one system; a field that the system itself changes is named as the system's.

    Raises:
        InputError: always.
    """
    section, _, name = field.partition(".")
    if (System, section) in OVERRIDES and name in getattr(system, section):
        field = f"systems.{system.name}.{field}"
    elif system.layout or system.training:
        # The scenario's own value may be fine for the other systems.
        problem = f"with the changes of system {system.name}, {problem}"
    raise InputError(problem, field=field, expected=expected)
