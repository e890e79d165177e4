"""Which terms a kernel belongs to: a table of patterns, the first that matches decides.

```yaml
rules:
  - kernel: "flash_bwd"                # regular expression, searched in the kernel's name
    within: "SparseAttention"          # and in the names of what encloses its launch, where that is asked for
    group: "CONTEXT_PARALLEL"          # and in the description of a collective's process group
    terms: [sparse_attention_backward] # terms of a step's time; several: one of them, the kernel does not tell which
    recomputed: [...]                  # instead of ``terms`` where backward encloses the launch
    exposed: true                      # a transfer: only what no computation covers counts
```
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.prediction import TERMS
from hyscale_model.scenario.fields import suggest
from hyscale_model.scenario.load import Document, load, loads
from hyscale_model.traces.trace import Kernel

# In the order in which they are looked for: names of what encloses a launch are many.
PATTERNS = ("kernel", "group", "within")
KEYS = (*PATTERNS, "terms", "recomputed", "exposed")
SHIPPED = "kernels.yaml"
# How the engine of autograd names what it runs.
BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")


@dataclass(frozen=True, slots=True)
class Rule:
    """Kernels and the terms they belong to; see the module.

    Attributes:
        patterns: field of a kernel -> pattern.
        terms, recomputed: see the module; ``recomputed`` empty: the same.
        exposed: whether it is a transfer.
    """

    patterns: Mapping[str, re.Pattern[str]]
    terms: tuple[str, ...]
    recomputed: tuple[str, ...] = ()
    exposed: bool = False

    def matches(self, kernel: Kernel) -> bool:
        """Whether every pattern is found."""
        said = {"kernel": (kernel.name,), "group": (kernel.group,), "within": kernel.within or ()}
        return all(any(pattern.search(text) for text in said[name]) for name, pattern in self.patterns.items())

    def terms_of(self, kernel: Kernel) -> tuple[str, ...]:
        """The terms of a kernel that matches; all that it may be where its launch is not known."""
        if not self.recomputed:
            return self.terms
        if kernel.within is None:
            return tuple(dict.fromkeys((*self.terms, *self.recomputed)))
        return self.recomputed if any(BACKWARD.search(name) for name in kernel.within) else self.terms


def first_match(rules: Iterable[Rule], kernel: Kernel) -> Rule | None:
    """The rule that decides."""
    return next((rule for rule in rules if rule.matches(kernel)), None)


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """Rules for Megatron-LM, PyTorch, Transformer Engine, NCCL and the kernels of this project."""
    text = files("hyscale_model.traces").joinpath(SHIPPED).read_bytes()
    return _rules(loads(text, SHIPPED))


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Rules of a file.

    Raises:
        InputError: a key or term that there is not, or a pattern that is no regular expression.
    """
    return _rules(load(path))


def _rules(document: Document) -> tuple[Rule, ...]:
    data = document.data
    for key in data:
        if key != "rules":
            raise _error(document, (key,), f"unknown key {key!r}", "rules")
    listed = data.get("rules")
    if not isinstance(listed, list) or not listed:
        raise _error(document, ("rules",), "there are no rules", "a list of {kernel: pattern, terms: [...]}")
    return tuple(_rule(document, index, each) for index, each in enumerate(listed))


def _rule(document: Document, index: int, told: Any) -> Rule:
    at = ("rules", index)
    if not isinstance(told, dict):
        raise _error(document, at, f"this is {told!r}", "{kernel: pattern, terms: [...]}")
    for key in told:
        if key not in KEYS:
            raise _error(document, (*at, key), f"unknown key {key!r}", suggest(str(key), KEYS))
    patterns = {}
    for name in PATTERNS:
        if name in told:
            try:
                patterns[name] = re.compile(str(told[name]))
            except re.error as error:
                raise _error(document, (*at, name), f"no regular expression: {error}", "such as 'flash.*bwd'") from None
    if not patterns:
        raise _error(document, at, "nothing says which kernels", " or ".join(PATTERNS))
    exposed = told.get("exposed", False)
    if not isinstance(exposed, bool):
        raise _error(document, (*at, "exposed"), f"this is {exposed!r}", "true or false")
    return Rule(
        patterns,
        _terms(document, (*at, "terms"), told.get("terms")),
        _terms(document, (*at, "recomputed"), told["recomputed"]) if "recomputed" in told else (),
        exposed,
    )


def _terms(document: Document, at: tuple[str | int, ...], told: Any) -> tuple[str, ...]:
    if not isinstance(told, list) or not told:
        raise _error(document, at, "no terms are named", "a list, such as [moe]")
    for term in told:
        if term not in TERMS:
            raise _error(document, at, f"there is no term {term!r}", suggest(str(term), tuple(TERMS)))
    return tuple(told)


def _error(document: Document, path: Sequence[str | int], problem: str, expected: str) -> InputError:
    field = ".".join(str(each) for each in path)
    return InputError(problem, document.file, document.line(tuple(path)), field, expected)
