"""The model fields of a Hugging Face ``config.json``.

The schema's names are those of Hugging Face, so most fields are taken as they are. What is known to cost nothing is
left out quietly; any other field that the schema lacks is named.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.importers.huggingface_fields import (
    ALIASES,
    DEFAULTS,
    NEUTRAL,
    NEUTRAL_AT,
    QUIET,
    QUIET_IN,
    REASONS,
    RENAMED,
)
from hyscale_model.importers.huggingface_patterns import LISTS, derived, whole
from hyscale_model.importers.imported import UNKNOWN, Entry, Imported, Unexpressed, unexpressed
from hyscale_model.scenario.fields import families
from hyscale_model.scenario.load import decode, read_bytes
from hyscale_model.scenario.scalars import show

# Fields of the schema that no configuration file has.
_OWN = frozenset({"name", "model_type", "published_parameters", "published_active_parameters"})
_NESTED = "text_config"
# What other fields are derived from.
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")


def model_fields(path: str | Path) -> dict[str, Any]:
    """Field -> value of the model in a ``config.json``, or in the folder that holds one.

    ``name`` is the folder's name, since the file itself rarely has one. Values are not checked here.

    Raises:
        InputError: the file cannot be read, is not JSON, is of a ``model_type`` that is not supported, or lacks a
            field that the cost depends on.
    """
    return read_config(path).values("model")


def read_config(path: str | Path) -> Imported:
    """The model of a ``config.json`` with the origin of each field, and every field that is not expressed.

    Raises:
        InputError: as in ``model_fields``.
    """
    path = Path(path)
    if os.path.isdir(path):
        path = path / "config.json"
    config, left = _text_model(_read(path))
    file = str(path)
    stated = config.get("model_type")
    known = {name: name for name in families()} | dict(ALIASES)
    if not isinstance(stated, str) or stated not in known:
        found = "there is no model_type" if stated is None else f"model_type {show(stated)} is not supported"
        raise InputError(found, file, field="model_type", expected=f"one of {', '.join(sorted(known))}")
    family = known[stated]
    own_name = path.name != "config.json" and path.stem
    named = Entry(own_name, "the file", stated=False) if own_name else Entry(_folder(path), "the folder", stated=False)
    entries: dict[str, Entry] = {"name": named}
    entries["model_type"] = Entry(family, "model_type" if family == stated else f"model_type {stated}, computed alike")
    renamed = {RENAMED.get(stated, {}).get(key, key): key for key in config}
    values = {name: config[key] for name, key in renamed.items()}
    for name in _SIZES:
        if values.get(name) is not None and whole(values, name) is None:
            raise InputError(f"{renamed[name]} is {show(values[name])}", file, expected="a whole number above 0")
    extra, used, notes = derived(family, values, DEFAULTS.get(stated, DEFAULTS.get(family, {})))
    for entry in fields(families()[family]):
        if entry.name in _OWN:
            continue
        value = values.get(entry.name)
        listed = extra.get(entry.name)
        if listed is not None and listed.origin in LISTS:
            # As in transformers, a list of layers decides.
            if value not in (None, listed.value):
                reason = f"{listed.origin} says {_brief(listed.value)}, taken"
                notes.append(unexpressed(renamed[entry.name], _brief(value), reason))
            entries[entry.name] = listed
        elif value is not None:
            entries[entry.name] = Entry(value, renamed[entry.name])
        elif entry.name in extra:
            entries[entry.name] = extra[entry.name]
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise _missing(stated, family, file, {**values, **extra})
    consumed = {*(renamed[name] for name in entries if name in renamed), *(renamed.get(name, name) for name in used)}
    left = [*left, *notes, *_not_expressed(config, consumed, stated, family)]
    return Imported(source=file, sections={"model": entries}, not_expressed=tuple(left))


def _missing(stated: str, family: str, file: str, values: Mapping[str, Any]) -> InputError:
    required = [each.name for each in fields(families()[family]) if each.default is MISSING and each.name not in _OWN]
    lacking = [each for each in required if values.get(each) is None]
    problem = f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} missing"
    if stated == family:
        return InputError(problem, file, expected="every field of the model")
    problem = f"model_type {stated} would be read as {family}, but {problem}"
    return InputError(problem, file, expected=f"a model that computes as {family} does")


def _folder(path: Path) -> str:
    return path.resolve().parent.name or path.stem


def _text_model(config: dict[str, Any]) -> tuple[dict[str, Any], list[Unexpressed]]:
    """The configuration of the text model, where it is a part of a larger one, and what else there is."""
    text = config.get(_NESTED)
    if not isinstance(text, dict):
        return config, []
    rest = {key: value for key, value in config.items() if key not in (_NESTED, "model_type", "tie_word_embeddings")}
    notes = [
        unexpressed(key, _brief(value), REASONS.get(key, UNKNOWN))
        for key, value in rest.items()
        if key not in QUIET and value not in NEUTRAL
    ]
    inherited = {key: config[key] for key in ("model_type", "tie_word_embeddings") if key in config}
    return {**inherited, **text}, notes


def _not_expressed(config: dict[str, Any], consumed: set[str], stated: str, family: str) -> list[Unexpressed]:
    """Every field that is neither taken over nor known to cost nothing."""
    notes = []
    for key, value in config.items():
        if key in consumed or key == "model_type" or key in QUIET or key in QUIET_IN[family]:
            continue
        if value in NEUTRAL or value in NEUTRAL_AT.get(key, ()):
            continue
        if key in ("sliding_window", "use_sliding_window") and config.get("use_sliding_window") is False:
            continue
        if key == "layer_types" and isinstance(value, list) and set(map(str, value)) <= _FULL_ATTENTION:
            continue
        notes.append(unexpressed(key, _brief(value), REASONS.get(key, UNKNOWN)))
    if stated == "qwen2":
        notes.append(unexpressed("qwen2", None, "biases of query, key and value are not expressed"))
    return notes


# Entries of layer_types that say what a family does in every layer anyway.
_FULL_ATTENTION = {"full_attention", "deepseek_sparse_attention", "indexed_attention"}


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(map(str, list(value)[:6]))}}}"
    if isinstance(value, list) and len(value) > 8:
        return f"[{', '.join(map(str, value[:4]))}, ... {len(value)} entries]"
    return json.dumps(value, ensure_ascii=False, default=str)


def _object(pairs: list[tuple[str, Any]], file: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"the key {twice} is given twice", file, expected="each key once")
    return found


def _read(path: Path) -> dict[str, Any]:
    file = str(path)
    text = decode(read_bytes(path), file).removeprefix("\ufeff")
    try:
        config = json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, file))
    except json.JSONDecodeError as error:
        raise InputError(f"this is not JSON ({error.msg})", file, error.lineno, expected="a JSON object") from None
    except InputError:
        raise
    except (RecursionError, ValueError):
        raise InputError("this is not JSON that can be read", file, expected="a JSON object") from None
    if not isinstance(config, dict):
        raise InputError(f"the file holds {show(config)}", file, expected="a JSON object")
    return config
