"""The hash of a kernel: what its code means, so that recorded results can tell which kernels they are of.

Needs neither torch nor Triton: kernels are read, never imported.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "hyscale_kernels"


def kernel_hash(*files: str | Path) -> str:
    """SHA-256 of what the code of source files means: written out again from syntax trees without docstrings.

    Comments and layout do not count, nor does the version of Python, whose trees differ.
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(_meaning(Path(file).read_text(encoding="utf-8")))
    return digest.hexdigest()


# Operations share files, and each is asked for once a profile.
@lru_cache(maxsize=256)
def _meaning(source: str) -> bytes:
    """Code written out again without what does not count."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                del body[0]
    return ast.unparse(_InParts().visit(tree)).encode()


class _InParts(ast.NodeTransformer):
    """Formatted strings as tuples of their parts: which quotes they are written out with depends on the version."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Tuple:
        """Constants as they are; values with their conversion and format."""
        parts: list[ast.expr] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                form = self.visit(part.format_spec) if part.format_spec else ast.Constant("")
                parts.append(ast.Tuple([self.visit(part.value), ast.Constant(part.conversion), form], ast.Load()))
            elif not (isinstance(part, ast.Constant) and part.value == ""):
                # Some versions end a format with an empty one.
                parts.append(part)
        return ast.Tuple(parts, ast.Load())


def source_paths(sources: Iterable[str]) -> list[Path]:
    """Where source files of kernels are, each named relative to the package ``hyscale_kernels``.

    Raises:
        ModuleNotFoundError: ``hyscale_kernels`` is not installed.
    """
    # Found without being imported: what is imported first decides whether Triton compiles or interprets.
    package = find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(f"{PACKAGE} is not installed", name=PACKAGE)
    root = Path(next(iter(package.submodule_search_locations)))
    return [root / source for source in sources]


def hash_of_sources(sources: Iterable[str]) -> str | None:
    """The hash of kernels by the names of their source files; None where there are none.

    Raises:
        ModuleNotFoundError: ``hyscale_kernels`` is not installed.
        FileNotFoundError: one of the files is not in it.
    """
    paths = source_paths(sources)
    return kernel_hash(*paths) if paths else None
