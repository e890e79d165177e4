"""What the values of ``--dtype`` and ``--shape`` mean for an operation."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_calibration.benches.operation import Case, Operation


class UsageError(ValueError):
    """A command line that asks for something that does not exist; the message names what does."""


def count(text: str) -> int:
    """A whole number from 1 on, as a type of argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def parse_shape(text: str) -> dict[str, str]:
    """``n=8192,L=1048576`` as a mapping."""
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not (key and equals and value):
            raise UsageError(f"--shape takes key=value,key=value, not {part.strip()!r}")
        if key in values:
            raise UsageError(f"--shape has {key} twice")
        values[key] = value
    return values


def select_dtypes(operation: Operation, dtype: str | None) -> tuple[str, ...]:
    """The types to measure with: all, or the one asked for."""
    if dtype is None:
        return operation.dtypes
    if dtype not in operation.dtypes:
        raise UsageError(f"{operation.name} has no dtype {dtype!r}, it has {', '.join(operation.dtypes)}")
    return (dtype,)


def select_cases(operation: Operation, values: Mapping[str, str]) -> list[Case]:
    """The cases with some values replaced; those that become equal are measured once."""
    cases: list[Case] = []
    for case in operation.cases:
        shape = dict(case.shape)
        for key, text in values.items():
            if key not in shape:
                raise UsageError(f"{operation.name} has no shape key {key!r}, it has {', '.join(shape)}")
            shape[key] = _like([each.shape[key] for each in operation.cases], key, text)
        if shape not in [each.shape for each in cases]:
            cases.append(Case(name=case.name, shape=shape))
    return cases


def _like(known: Sequence[Any], key: str, text: str) -> Any:
    """``text`` as a value like those of the cases: one of them if they are words, positive unless one of them is 0."""
    default = known[0]
    if isinstance(default, str):
        if text not in known:
            raise UsageError(f"shape {key} is one of {', '.join(dict.fromkeys(known))}, not {text!r}")
        return text
    kind = "whole number" if isinstance(default, int) else "number"
    try:
        value = type(default)(text)
    except ValueError:
        raise UsageError(f"shape {key} must be a {kind}, is {text!r}") from None
    # Not a number fails this comparison too.
    if not (0 < value < float("inf") or (value == 0 and 0 in known)):
        raise UsageError(f"shape {key} must be a positive {kind}, is {text}")
    return value
