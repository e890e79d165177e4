"""The model fields of a Hugging Face ``config.json``.

The schema's names are those of Hugging Face, so fields are taken as they are; what does not matter
for cost (token ids, dropout, initialisation) is left out.
"""

from __future__ import annotations

import json
import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

from hyscale_model.errors import InputError
from hyscale_model.scenario.fields import bare, groups, hints, suggest
from hyscale_model.scenario.load import decode, read_bytes
from hyscale_model.scenario.scalars import show
from hyscale_model.scenario.schema import Scenario


def model_fields(path: str | Path) -> dict[str, Any]:
    """Field -> value of the model in a ``config.json``, or in the folder that holds one.

    ``name`` is the folder's name, since the file itself rarely has one. Values are not checked here.

    Raises:
        InputError: the file cannot be read, is not JSON, is of a ``model_type`` that is not supported, or lacks a
            field that the cost depends on.
    """
    path = Path(path)
    if os.path.isdir(path):
        path = path / "config.json"
    config = _read(path)
    kinds = {model_type: kind for kind in groups(hints(Scenario)["model"]) for model_type in _model_types(kind)}
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in kinds:
        found = "there is no model_type" if model_type is None else f"model_type {show(model_type)} is not supported"
        raise InputError(found, str(path), field="model_type", expected=suggest(str(model_type), kinds))
    found_fields: dict[str, Any] = {"name": path.resolve().parent.name or path.stem}
    for entry in fields(kinds[model_type]):
        if entry.name == "name":
            continue
        if entry.name in config:
            found_fields[entry.name] = config[entry.name]
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise InputError(
                f"{entry.name} is missing", str(path), field=entry.name, expected="every field of the model"
            )
    return found_fields


def _model_types(kind: type) -> tuple[str, ...]:
    return get_args(bare(hints(kind)["model_type"]))


def _read(path: Path) -> dict[str, Any]:
    file = str(path)
    text = decode(read_bytes(path), file).removeprefix("\ufeff")
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"this is not JSON ({error.msg})", file, error.lineno, expected="a JSON object") from None
    except (RecursionError, ValueError):
        raise InputError("this is not JSON that can be read", file, expected="a JSON object") from None
    if not isinstance(config, dict):
        raise InputError(f"the file holds {show(config)}", file, expected="a JSON object")
    return config
