"""From a YAML file to a checked model of it, every schema error with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lightrig.testbeds.base import Part, schema_of
from lightrig.testbeds.findings import Findings, did_you_mean
from lightrig.testbeds.yaml_positions import Keys, Located, read

Model = TypeVar("Model", bound=Part)

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "dataclass_type": "keys with values",
    "model_attributes_type": "keys with values",
}
EXAMPLES = {
    "name": "name: mine",
    "model": "model: polatis",
    "address": "address: tl1://ocs.lab",
    "size": "size: 32x32",
    "switches": "switches: {ocs: {model: polatis, address: tl1://ocs.lab, size: 32x32}}",
    "nics": "nics: {nic0: {netdev: eth0, rate: 100G}}",
    "netdev": "netdev: eth0",
    "rate": "rate: 100G",
    "launch": "launch: {min: -4.3 dBm, max: 4.5 dBm}",
    "receive": "receive: {min: -10.6 dBm, max: 4.5 dBm}",
    "wavelength": "wavelength: 1310 nm",
    "mean": "mean: 40 ms",
}
"""How a key that is missing may look, by key."""

_PRIVATE = re.compile(r"login|passw|passphrase|secret|token|options", re.IGNORECASE)


def read_as(
    model: type[Model], path: Path, content: bytes | None = None
) -> tuple[Model, Located, Findings]:
    """Return what the file at `path` holds as a `model`, and where to note what else is wrong.

    content: in place of the file's.

    Raises `TestbedError` with every breach of the schema.
    """
    located = read(path, content)
    findings = Findings(located)
    document = _parse(model, located, findings)
    findings.raise_if_any()
    assert document is not None
    return document, located, findings


def _parse(model: type[Model], located: Located, findings: Findings) -> Model | None:
    nulls: set[Keys] = set()
    data = _without_nulls(located.data, (), nulls)
    for keys in nulls:
        key = keys[-1] if keys else ""
        findings.add(
            keys,
            f"found nothing after {str(key)!r}, expected a value, or leave the line out",
            of_key=True,
        )
    try:
        document = model.model_validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        _translate(errors, data, nulls, findings, model)
        return None
    return None if findings else document


def _without_nulls(data: Any, keys: Keys, nulls: set[Keys]) -> Any:
    children: Iterator[tuple[str | int, Any]]
    if isinstance(data, dict):
        children = iter(data.items())
    elif isinstance(data, list):
        children = iter(enumerate(data))
    else:
        return data
    result: list[tuple[str | int, Any]] = []
    for key, value in children:
        if value is None:
            nulls.add((*keys, key))
            # A list keeps its length, so that later indices still lead to their places.
            if isinstance(data, dict):
                continue
        result.append((key, _without_nulls(value, (*keys, key), nulls)))
    return dict(result) if isinstance(data, dict) else [value for _, value in result]


def _translate(
    errors: list[ErrorDetails],
    data: Any,
    nulls: set[Keys],
    findings: Findings,
    model: type[Part],
) -> None:
    wrong_types: dict[Keys, tuple[str, list[str]]] = {}
    for error in errors:
        keys = _real_keys(error["loc"], data, error["type"])
        if keys in nulls:
            continue
        private = any(isinstance(key, str) and _PRIVATE.search(key) for key in keys)
        found = "a value" if private else _describe(error["input"])
        context = error.get("ctx", {})
        match error["type"]:
            case "missing":
                key = str(keys[-1])
                example = f", e.g. {EXAMPLES[key]}" if key in EXAMPLES else ""
                findings.add(keys[:-1], f"the key {key!r} is missing here{example}", of_key=True)
            case "extra_forbidden" | "unexpected_keyword_argument":
                key = str(keys[-1])
                known = _known_keys(model, keys[:-1])
                hint = "; another `kind` has it" if key in known else did_you_mean(key, known)
                findings.add(keys, f"found the unknown key {key!r}{hint}", of_key=True)
            case "value_error":
                findings.add(keys, str(context["error"]))
            case "literal_error":
                options = re.findall(r"'([^']*)'", str(context["expected"]))
                hint = did_you_mean(str(error["input"]), options)
                findings.add(keys, f"found {found}, expected {context['expected']}{hint}")
            case "greater_than_equal":
                findings.add(keys, f"found {found}, expected at least {context['ge']}")
            case "less_than_equal":
                findings.add(keys, f"found {found}, expected at most {context['le']}")
            case "string_pattern_mismatch":
                findings.add(
                    keys, f"found {found}, expected letters, digits, - and _, e.g. 'rack7'"
                )
            case kind if kind in _EXPECTED:
                _, expected = wrong_types.setdefault(keys, (found, []))
                if _EXPECTED[kind] not in expected:
                    expected.append(_EXPECTED[kind])
            case _:
                findings.add(keys, f"found {found}: {error['msg']}")
    for keys, (what, expected) in wrong_types.items():
        hint = ""
        if expected == ["text"] and "number" in what:
            hint = f' in quotes, e.g. "{what.removeprefix("the number ")}"'
        if expected == ["keys with values"] and (known := _known_keys(model, keys)):
            hint = f": {', '.join(known)}"
        if what.startswith(("'-", '"-')):
            hint = "; a list item needs a space after its dash"
        findings.add(keys, f"found {what}, expected {' or '.join(expected)}{hint}")


def _real_keys(loc: tuple[int | str, ...], data: Any, kind: str) -> Keys:
    """Drop what pydantic adds to a place for itself: names of union members."""
    keys: list[str | int] = []
    for index, key in enumerate(loc):
        below: dict[str | int, Any] = {}
        if isinstance(data, dict):
            below = data
        elif isinstance(data, list):
            below = dict(enumerate(data))
        if key in below:
            data = below[key]
        elif kind != "missing" or index < len(loc) - 1:
            continue
        keys.append(key)
    return tuple(keys)


def _describe(found: object) -> str:
    match found:
        case None:
            return "nothing"
        case bool():
            return str(found).lower()
        case int() | float():
            return f"the number {str(found)[:40]}"
        case str():
            return repr(found if len(found) <= 40 else found[:37] + "...")
        case list():
            return "a list"
    return "keys with values"


def _known_keys(model: type[Part], keys: Keys) -> list[str]:
    """Return the keys that the schema of `model` knows in the mapping at `keys`."""
    schema = schema_of(model, "")
    forms = [schema]
    for key in keys:
        forms = [
            below for form in forms for below in _below(form, str(key), schema.get("$defs", {}))
        ]
    return [name for form in forms for name in form.get("properties", ())]


def _below(schema: Any, key: str, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the forms that the value of `key` may have in an object or list of a JSON Schema."""
    below = schema.get("properties", {}).get(key)
    below = below or schema.get("additionalProperties") or schema.get("items")
    if not isinstance(below, dict):
        return []
    choices = below.get("oneOf") or below.get("anyOf") or [below]
    return [definitions.get(each.get("$ref", "").rpartition("/")[2], each) for each in choices]
