"""Scenarios a page may ask for: shipped ones by name, and texts that a browser sends along."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.scenario.load import LIMIT_BYTES, decode

UPLOAD = "upload:"
SUFFIXES = (".yaml", ".yml")
# What a page without an address shows, if it is there.
FIRST = "glm-5.1-1m-512xh20"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a scenario comes from: a file of this machine, or a text.

    Attributes:
        name: what messages call it.
        path: the file, chosen by whoever started the dashboard; None for a text.
        text: the text of an upload.
        changed_ns: when the file was last changed, so that an edited file is another source.
    """

    name: str
    path: Path | None = None
    text: bytes | None = None
    changed_ns: int = 0


class Offer:
    """The scenarios of a folder, or those of the catalogue where there is no such folder.

    Args:
        folder: YAML files to offer by their stem.
    """

    def __init__(self, folder: Path | None = None) -> None:
        found = sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []
        self._paths = {path.stem: path for path in found if path.suffix in SUFFIXES and path.is_file()}
        if not self._paths:
            names = catalog.names("published")
            self._paths = {name: Path(str(catalog.path("published", name))) for name in names}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all offered scenarios, the one of the introduction first."""
        return tuple(sorted(self._paths, key=lambda name: name != FIRST))

    def source(self, name: str, uploads: Mapping[str, Mapping[str, str]]) -> Source:
        """The source of a scenario.

        Args:
            name: one of ``names``, or ``upload:`` and a key of ``uploads``.
            uploads: what the browser keeps: key -> ``{"name", "text"}``.

        Raises:
            InputError: there is no such scenario.
        """
        if name.startswith(UPLOAD):
            kept = uploads.get(name.removeprefix(UPLOAD))
            if kept is None or kept.get("kind"):
                raise InputError(
                    "this address belongs to a scenario uploaded in another browser or session",
                    expected="the same file, uploaded again",
                )
            return Source(shown_name(kept["name"]), text=kept["text"].encode())
        if name not in self._paths:
            raise InputError(f"there is no scenario {name[:80]!r}", expected=f"one of {', '.join(self._paths)}")
        path = self._paths[name]
        return Source(_near(path), path=path, changed_ns=path.stat().st_mtime_ns if path.exists() else 0)


def _near(path: Path) -> str:
    """A path as people here would type it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def received(name: str, content: Any) -> tuple[str, dict[str, str]]:
    """An upload as the browser keeps it: its key, and ``{"name", "text"}``.

    Args:
        name: what the user's file is called; only ever shown.
        content: its bytes in base 64; None where the browser found it too large to send.

    Raises:
        InputError: it is too large, damaged or no text.
    """
    # Four characters carry three bytes.
    if content is None or len(str(content)) > (LIMIT_BYTES + 2) * 4 // 3:
        expected = f"at most {LIMIT_BYTES >> 20} MiB"
        raise InputError(f"the file is larger than {LIMIT_BYTES} bytes", name, expected=expected)
    try:
        raw = base64.b64decode(str(content), validate=True)
    except binascii.Error:
        raise InputError("the upload arrived damaged", name, expected="the file, uploaded again") from None
    return hashlib.sha256(raw).hexdigest()[:16], {"name": name, "text": decode(raw, name)}


def shown_name(filename: str) -> str:
    """The name of an uploaded file as messages may show it: no folders, nothing unprintable."""
    last = str(filename).replace("\\", "/").rpartition("/")[2]
    return "".join(char for char in last if char.isprintable())[:80] or "upload"
