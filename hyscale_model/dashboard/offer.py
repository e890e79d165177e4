"""Scenarios a page may ask for: shipped ones by name, and texts that a browser sends along."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.scenario.load import LIMIT_BYTES

UPLOAD = "upload:"
SUFFIXES = (".yaml", ".yml")


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
        """The names of all offered scenarios."""
        return tuple(self._paths)

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
            if kept is None:
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


def received(contents: str, filename: str) -> tuple[str, dict[str, str]]:
    """An upload as the browser keeps it: its key, and ``{"name", "text"}``.

    Args:
        contents: a data address as browsers make it, ``data:...;base64,...``.
        filename: what the user's file is called; only ever shown.

    Raises:
        InputError: it is too large, empty or no text.
    """
    name = shown_name(filename)
    _, separator, encoded = contents.partition(";base64,")
    # Four characters carry three bytes.
    if len(encoded) > LIMIT_BYTES * 4 // 3 + 4:
        raise InputError(
            f"the file is larger than {LIMIT_BYTES} bytes", name, expected=f"at most {LIMIT_BYTES >> 20} MiB"
        )
    try:
        content = base64.b64decode(encoded, validate=True) if separator else b""
    except binascii.Error:
        raise InputError("the upload arrived damaged", name, expected="the file, uploaded again") from None
    from hyscale_model.scenario.load import decode

    text = decode(content, name)
    return hashlib.sha256(content).hexdigest()[:16], {"name": name, "text": text}


def shown_name(filename: str) -> str:
    """The name of an uploaded file as messages may show it: no folders, nothing unprintable."""
    last = str(filename).replace("\\", "/").rpartition("/")[2]
    return "".join(char for char in last if char.isprintable())[:80] or "upload"
