"""JSON of a result: strict, and in the order in which people read it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from hyscale_model.prediction import MEMORY_KINDS, TERMS

_BY_TERM = ("time_s", "terms", "hidden_communication_s", "floor_s", "bound_by")
_BY_KIND = ("at_peak_bytes", "largest_bytes", "per_layer_bytes")


def in_order(values: Mapping[str, Any], order: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with the keys of ``order`` first, in its order; keys it does not know follow as they came."""
    known = {key: values[key] for key in order if key in values}
    return known | {key: value for key, value in values.items() if key not in known}


def ordered(data: Any) -> Any:
    """The same result with terms and kinds of memory in the order of ``TERMS`` and ``MEMORY_KINDS``."""
    if isinstance(data, Mapping):
        result = {}
        for key, value in data.items():
            if isinstance(value, Mapping) and key in _BY_TERM:
                value = in_order(value, TERMS)
            elif isinstance(value, Mapping) and key in _BY_KIND:
                value = in_order(value, MEMORY_KINDS)
            result[key] = ordered(value)
        return result
    if isinstance(data, (list, tuple)):
        return [ordered(value) for value in data]
    return data


def not_finite(data: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of every NaN and infinity in ``data``."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from not_finite(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, (list, tuple)):
        for index, value in enumerate(data):
            yield from not_finite(value, f"{path}[{index}]")
    elif isinstance(data, float) and not math.isfinite(data):
        yield path


def dumps(data: Mapping[str, Any]) -> str:
    """JSON text of a result, without a newline at its end.

    Raises:
        ValueError: a number is NaN or infinite, which JSON cannot say; the message names where.
    """
    bad = list(not_finite(data))
    if bad:
        raise ValueError(f"not a finite number: {', '.join(bad[:5])}")
    return json.dumps(ordered(data), indent=2, ensure_ascii=False, allow_nan=False)
