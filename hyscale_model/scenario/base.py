"""Building blocks of the schema: kinds of numbers, and defaults that carry their reason."""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field


def whole(value: Any) -> Any:
    """Whole numbers may be written 1e6; booleans and text are not numbers."""
    if isinstance(value, (bool, str)):
        raise ValueError("must be a whole number")
    return value


def number(value: Any) -> Any:
    """Booleans and text are not numbers."""
    if isinstance(value, (bool, str)):
        raise ValueError("must be a number")
    return value


Count: TypeAlias = Annotated[int, BeforeValidator(whole), Field(ge=1, le=10**15)]
CountOrZero: TypeAlias = Annotated[int, BeforeValidator(whole), Field(ge=0, le=10**15)]
Positive: TypeAlias = Annotated[float, BeforeValidator(number), Field(gt=0, allow_inf_nan=False)]
Fraction: TypeAlias = Annotated[float, BeforeValidator(number), Field(gt=0, le=1, allow_inf_nan=False)]
NotNegative: TypeAlias = Annotated[float, BeforeValidator(number), Field(ge=0, allow_inf_nan=False)]
Probability: TypeAlias = Annotated[float, BeforeValidator(number), Field(ge=0, lt=1, allow_inf_nan=False)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Text: TypeAlias = Annotated[str, Field(min_length=1)]

STRICT = ConfigDict(extra="forbid")


def assumed(default: Any, reason: str) -> Any:
    """A field with a default, and the reason that makes the default an honest assumption."""
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: default, metadata={"reason": reason})
    return field(default=default, metadata={"reason": reason})


def default_reason(cls: type, name: str) -> str | None:
    """Why the default of a field is what it is; None where a field has no default or no reason."""
    entry = cls.__dataclass_fields__.get(name)  # type: ignore[attr-defined]
    if entry is None or (entry.default is MISSING and entry.default_factory is MISSING):
        return None
    return entry.metadata.get("reason")
