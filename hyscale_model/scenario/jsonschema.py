"""The JSON Schema of the scenario file, for editors and other programs.

It describes the file, not the resolved scenario: catalogue names and ``extends`` where they are
allowed, and no field required where a base may supply it. All of it is derived from the schema's
classes and the names in the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin

from hyscale_model import catalog
from hyscale_model.scenario.base import default_reason
from hyscale_model.scenario.fields import OVERRIDES, bare, bounds, hints, members
from hyscale_model.scenario.references import REFERENCES
from hyscale_model.scenario.schema import Assumption, DocumentLengths, Scenario, System, Workload

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
_DOCUMENT_FORMS: tuple[Schema, ...] = (
    {
        "type": "object",
        "properties": {"histogram": {"type": "object", "minProperties": 1, "description": "length: documents"}},
        "required": ["histogram"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"file": {"type": "string", "description": "one length, or length,count, a line"}},
        "required": ["file"],
        "additionalProperties": False,
    },
)
# The path of a reference says which field it is; a field's name is enough to find it again.
_NAMED = {path[-1]: kind for path, kind in REFERENCES.items()}


def scenario_json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a scenario file."""
    definitions: dict[str, Schema] = {}
    root = _object(Scenario, definitions)
    root["properties"]["extends"] = {"type": "string", "description": "another scenario to build on"}
    required = root.pop("required")
    return {
        "$schema": DIALECT,
        "title": "hyscale-model scenario",
        **root,
        "anyOf": [{"required": required}, {"required": ["extends"]}],
        "$defs": dict(sorted(definitions.items())),
    }


def _object(owner: type, definitions: dict[str, Schema]) -> Schema:
    properties = {entry.name: _property(owner, entry, definitions) for entry in fields(owner)}
    required = [entry.name for entry in fields(owner) if _is_required(entry)]
    summary = (owner.__doc__ or "").strip().split("\n")[0].replace("``", "'")
    return {
        "type": "object",
        "description": summary,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _is_required(entry: Field[Any]) -> bool:
    return entry.default is MISSING and entry.default_factory is MISSING


def _property(owner: type, entry: Field[Any], definitions: dict[str, Schema]) -> Schema:
    annotation = hints(owner)[entry.name]
    if (owner, entry.name) in OVERRIDES:
        schema = _reference(OVERRIDES[owner, entry.name], definitions)
    elif owner is Assumption and entry.name == "choices":
        weights = {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}}
        schema = {"anyOf": [{"type": "array", "minItems": 1}, {**weights, "minProperties": 1}]}
    elif entry.name in _NAMED and is_dataclass(bare(members(annotation)[0])):
        schema = _named(_NAMED[entry.name], annotation, definitions)
    elif owner is Workload and entry.name == "document_lengths":
        schema = {"anyOf": [*_value(annotation, definitions)["anyOf"], *_DOCUMENT_FORMS]}
        definitions[DocumentLengths.__name__]["required"] = ["lengths"]
    else:
        schema = _value(annotation, definitions)
    reason = default_reason(owner, entry.name)
    if reason is None:
        return schema
    default = entry.default if entry.default is not MISSING else {}
    return {**schema, "default": default, "description": f"By default: {reason}"}


def _named(kind: str, annotation: Any, definitions: dict[str, Schema]) -> Schema:
    """A catalogue name, or a mapping that may build on one."""
    objects = []
    for member in members(annotation):
        owner = bare(member)
        if owner.__name__ not in definitions:
            definitions[owner.__name__] = _based(_object(owner, definitions), kind)
        objects.append({"$ref": f"#/$defs/{owner.__name__}"})
    return {"anyOf": [{"enum": list(catalog.names(kind))}, *objects]}


def _based(schema: Schema, kind: str) -> Schema:
    """An object whose fields a base may supply; without a base all required ones must be there."""
    required = schema.pop("required")
    bases: Schema = {"extends": {"enum": list(catalog.names(kind))}}
    if kind == "models":
        bases["hf_config"] = {"type": "string", "description": "path of a Hugging Face config.json"}
    if kind == "systems":
        return {**schema, "required": required, "properties": {**bases, **schema["properties"]}}
    alternatives = [{"required": [base]} for base in bases]
    return {
        **schema,
        "properties": {**bases, **schema["properties"]},
        "anyOf": [*alternatives, {"required": required}],
    }


def _reference(owner: type, definitions: dict[str, Schema]) -> Schema:
    name = owner.__name__
    if name not in definitions:
        schema = _object(owner, definitions)
        definitions[name] = _based(schema, "systems") if owner is System else schema
    return {"$ref": f"#/$defs/{name}"}


def _value(annotation: Any, definitions: dict[str, Schema]) -> Schema:
    options = members(annotation)
    if len(options) > 1:
        return {"anyOf": [_value(option, definitions) for option in options]}
    kind, limits = bare(annotation), bounds(annotation)
    if is_dataclass(kind) and isinstance(kind, type):
        return _reference(kind, definitions)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is not Ellipsis:
            return {"type": "array", "items": _value(arguments[0], definitions), "minItems": 2, "maxItems": 2}
        items = _value(arguments[0], definitions)
        if bare(arguments[0]) is System:
            items = {"anyOf": [{"enum": list(catalog.names("systems"))}, items]}
        size = {"minItems": limits["min_length"]} if "min_length" in limits else {}
        return {"type": "array", "items": items, **size}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(arguments[1], definitions)}
    if kind is Any:
        return {}
    if kind is str:
        return {"type": "string", **({"minLength": limits["min_length"]} if "min_length" in limits else {})}
    names: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return {"type": names[kind], **{_KEYWORDS[key]: value for key, value in limits.items() if key in _KEYWORDS}}
