"""Common base of the models of all files, and their JSON Schema."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Base of all parts of a file: unknown keys and silent conversions are errors."""

    # Validators of parts are built with those of the whole file, once: half the start-up time.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def schema_of(model: type[Part], title: str) -> dict[str, Any]:
    """Return the JSON Schema of a file that holds a `model`."""
    schema = _without_null(model.model_json_schema())
    assert isinstance(schema, dict)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": title,
    }


def _without_null(schema: Any) -> Any:
    """Drop the null that stands for "left out" in Python; a file leaves the key out."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: _without_null(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    options = result.get("anyOf")
    if isinstance(options, list):
        options = [option for option in options if option != {"type": "null"}]
        if len(options) == 1:
            del result["anyOf"]
            return {**options[0], **result}
        result["anyOf"] = options
    return result
