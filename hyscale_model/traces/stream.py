"""Chrome JSON, one event at a time: a trace of gigabytes is never held in memory as a whole."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from hyscale_model.errors import InputError

EVENTS = "traceEvents"
# Characters that are read at a time, and the longest single value: an event has some hundreds.
CHUNK, LONGEST = 1 << 20, 1 << 26
GZIP = b"\x1f\x8b"
# What a value that is cut off may end with.
_BEGUN = re.compile(r"[\s\w.+\-\\]*")
WHOLE = "a trace that export_chrome_trace wrote to its end"

Event = Mapping[str, Any]


def read_events(path: Path, keep: tuple[str, ...], take: Callable[[Event], None]) -> dict[str, Any]:
    """Hand every event of a trace to ``take``; the values of the keys ``keep`` beside the events are returned.

    Raises:
        InputError: the file cannot be read, is no trace, or ends too early; with the number of events before it.
    """
    with _opened(path) as file:
        return _Reader(file, str(path)).run(keep, take)


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP
        with (
            gzip.open(path, "rt", encoding="utf-8", errors="replace")
            if packed
            else path.open(encoding="utf-8", errors="replace") as file
        ):
            yield file
    except FileNotFoundError:
        raise InputError("there is no such file", str(path)) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"the compressed file is cut off or damaged: {error}", str(path), expected=WHOLE) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", str(path)) from None


class _Reader:
    """JSON values of a text that is read in pieces."""

    def __init__(self, file: TextIO, name: str) -> None:
        self._file, self._name = file, name
        # Kernel names may hold any character.
        self._decode = json.JSONDecoder(strict=False).raw_decode
        self._text, self._at, self._ended = "", 0, False
        self._events = 0

    def run(self, keep: tuple[str, ...], take: Callable[[Event], None]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        if self._peek() == "[":
            # The older form: events alone.
            self._all_events(take)
            return kept
        if self._peek() != "{":
            raise self._error("this is no Chrome JSON", 'a trace of torch.profiler: {..., "traceEvents": [...]}')
        self._at += 1
        found = False
        while self._peek() != "}":
            key = self._value()
            if not isinstance(key, str) or self._peek() != ":":
                raise self._error("this is no JSON object", WHOLE)
            self._at += 1
            if key == EVENTS:
                found = True
                self._all_events(take)
            else:
                value = self._value()
                if key in keep:
                    kept[key] = value
            self._separator("}")
        if not found:
            raise self._error(f"there is no {EVENTS!r}", 'a trace of torch.profiler: {..., "traceEvents": [...]}')
        return kept

    def _all_events(self, take: Callable[[Event], None]) -> None:
        if self._peek() != "[":
            raise self._error(f"{EVENTS!r} is no list", WHOLE)
        self._at += 1
        while self._peek() != "]":
            event = self._value()
            if not isinstance(event, dict):
                raise self._error(f"this is no event: {str(event)[:60]}", "an object")
            self._events += 1
            take(event)
            self._separator("]")
        self._at += 1

    def _separator(self, end: str) -> None:
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != end:
            raise self._error(f"{self._peek()!r} where ',' or {end!r} belongs", WHOLE)

    def _peek(self) -> str:
        """The next character that is no white space.

        Raises:
            InputError: there is none.
        """
        while True:
            while self._at < len(self._text):
                character = self._text[self._at]
                if not character.isspace():
                    return character
                self._at += 1
            if not self._more(CHUNK):
                raise self._error("the file ends in the middle", WHOLE)

    def _value(self) -> Any:
        self._peek()
        size = CHUNK
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # It may go on in what was not read yet.
                goes_on = error.msg.startswith("Unterminated") or _BEGUN.fullmatch(self._text, error.pos) is not None
                if len(self._text) - self._at < LONGEST and self._more(size):
                    size *= 2
                    continue
                problem = "the file ends in the middle" if goes_on and self._ended else f"not JSON: {error.msg}"
                raise self._error(problem, WHOLE) from None
            except RecursionError:
                raise self._error("not a trace: values in values without end", WHOLE) from None
            if end + 2 >= len(self._text) and self._more(size):
                # A number at the end of the piece may go on: 1 with e+6.
                continue
            self._at = end
            return value

    def _more(self, size: int) -> bool:
        """Read on; False, and nothing changes, at the end of the file."""
        piece = "" if self._ended else self._file.read(size)
        self._ended = not piece
        if piece:
            self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)

    def _error(self, problem: str, expected: str) -> InputError:
        where = f"after {self._events:,} events " if self._events else ""
        return InputError(f"{where}{problem}", self._name, expected=expected)
