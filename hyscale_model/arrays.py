"""Numbers that broadcast: one code path for a scenario, a sweep and its interval.

Every cost formula takes and returns ``Number``: a float, or an array whose axes are
(points, draws). Fields that do not vary stay Python floats, which keeps a single prediction cheap.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

# Fields of the scenario are annotated as scalars; in a batch the same field holds an array.
Number: TypeAlias = Any


def equals(value: Number, *options: str) -> Number:
    """1 where a categorical value is one of ``options``, else 0 (works on names and arrays of names)."""
    if isinstance(value, np.ndarray):
        matches = value == options[0]
        for option in options[1:]:
            matches = matches | (value == option)
        return matches.astype(float)
    return float(value in options)


def nominal(value: Number) -> float:
    """The value at the nominal point: the first of an array, or the number itself."""
    return float(np.ravel(value)[0])


def where(condition: Number, yes: Number, no: Number) -> Number:
    """``np.where`` that stays a Python number when everything is scalar."""
    if not isinstance(condition, np.ndarray):
        return yes if condition else no
    return np.where(condition != 0, yes, no)


def maximum(*values: Number) -> Number:
    """Elementwise maximum that stays a Python number when everything is scalar."""
    result = values[0]
    for value in values[1:]:
        if isinstance(result, np.ndarray) or isinstance(value, np.ndarray):
            result = np.maximum(result, value)
        else:
            result = max(result, value)
    return result


def minimum(*values: Number) -> Number:
    """Elementwise minimum that stays a Python number when everything is scalar."""
    result = values[0]
    for value in values[1:]:
        if isinstance(result, np.ndarray) or isinstance(value, np.ndarray):
            result = np.minimum(result, value)
        else:
            result = min(result, value)
    return result


def ceil_div(dividend: Number, divisor: Number) -> Number:
    """Smallest whole number of ``divisor`` that covers ``dividend``."""
    return -(-dividend // divisor)
