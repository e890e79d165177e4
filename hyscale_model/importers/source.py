"""Finds out what a source is, and reads it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from hyscale_model.errors import InputError
from hyscale_model.importers.huggingface import read_config
from hyscale_model.importers.imported import Imported
from hyscale_model.importers.megatron import megatron_arguments, read_megatron

CONFIG_SUFFIX = ".json"


def read_source(words: Sequence[str]) -> Imported:
    """An import from a file, or from Megatron-LM arguments.

    A folder or a ``.json`` is a Hugging Face configuration; any other file is a launch script, or with ``.yaml`` a list
    of arguments. Words that begin with ``--`` are the arguments themselves, also all in one text.

    Raises:
        InputError: there is no such file, or it cannot be used.
    """
    first = words[0] if words else ""
    if len(words) == 1 and not first.startswith("-"):
        if os.path.isdir(first) or first.lower().endswith(CONFIG_SUFFIX):
            return read_config(first)
        if os.path.exists(first) or " --" not in first:
            return read_megatron(Path(first))
    if not any(word.startswith("--") or " --" in word for word in words):
        raise InputError("this is neither a file nor arguments", expected="one file, or arguments such as --num-layers")
    try:
        split = [part for word in words for part in (shlex.split(word) if " --" in f" {word}" else [word])]
    except ValueError as error:
        raise InputError(f"the arguments cannot be split ({error})", expected="closed quotes") from None
    return megatron_arguments(split)
