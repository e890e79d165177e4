"""A prediction as the command that gives it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def command(file: str, systems: Sequence[str], overrides: Sequence[str]) -> str:
    """``hyscale predict`` of a scenario with its options, for a shell."""
    words = ["hyscale", "predict", file]
    for name in systems:
        words += ["--system", name]
    for text in overrides:
        words += ["--set", text]
    return shlex.join(words)
