"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what becomes ``path`` once all is written: nobody sees half a file, a failure leaves the old one.

    Raises:
        OSError: the system refuses.
    """
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        yield unfinished
        # Without this a crash of the machine may leave the name and lose the contents.
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
