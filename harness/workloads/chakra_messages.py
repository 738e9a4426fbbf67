"""Messages of Chakra's execution traces, described for protobuf (extra `traces`).

Source: mlcommons/chakra, schema/protobuf/et_def.proto, of 0.0.4: numbers and types of fields.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from lightrig.harness.workloads.graph import WorkloadError

PACKAGE = "ChakraProtoMsg"
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Types of nodes; beside them INVALID 0, METADATA 1, MEM_LOAD 2, MEM_STORE 3."""
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 5, 6, 7
"""Kinds of collectives that are simulated, of ten."""

_SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)


class Messages(NamedTuple):
    """Classes of messages."""

    metadata: Any
    node: Any


@cache
def messages() -> Messages:
    """Return the classes; raises `WorkloadError` where protobuf is not installed."""
    try:
        from google.protobuf import (  # noqa: PLC0415 - of the extra
            descriptor_pb2,
            descriptor_pool,
            message_factory,
        )
    except ImportError:
        raise WorkloadError(
            "execution traces need protobuf: pip install 'lightrig[traces]'"
        ) from None
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")

    def message(name: str, *fields: tuple[str, int, str, bool]) -> Any:
        made = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            label = "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
            added = made.field.add(name=field, number=number)
            added.label = descriptor_pb2.FieldDescriptorProto.Label.Value(label)
            if kind in _SCALARS:
                named = f"TYPE_{kind.upper()}"
                added.type = descriptor_pb2.FieldDescriptorProto.Type.Value(named)
            else:
                added.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                added.type_name = f".{PACKAGE}.{kind}"
        return made

    values: list[tuple[str, int, str]] = []
    for at, scalar in enumerate(_SCALARS):
        message(f"{scalar.capitalize()}List", ("values", 1, scalar, True))
        values.append((f"{scalar}_val", 3 + 2 * at, scalar))
        values.append((f"{scalar}_list", 4 + 2 * at, f"{scalar.capitalize()}List"))
    attribute = message(
        "AttributeProto",
        ("name", 1, "string", False),
        ("doc_string", 2, "string", False),
        *((field, number, kind, False) for field, number, kind in values),
    )
    attribute.oneof_decl.add(name="value")
    for field in attribute.field:
        if field.number >= 3:
            field.oneof_index = 0
    inputs = ("values", 1, "string", False), ("shapes", 2, "string", False)
    message("IOInfo", *inputs, ("types", 3, "string", False))
    message("GlobalMetadata", ("version", 1, "string", False), ("attr", 2, "AttributeProto", True))
    message(
        "Node",
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "int32", False),  # an enumeration, which is written alike
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("inputs", 8, "IOInfo", False),
        ("outputs", 9, "IOInfo", False),
        ("attr", 10, "AttributeProto", True),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)

    def found(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))

    return Messages(found("GlobalMetadata"), found("Node"))
