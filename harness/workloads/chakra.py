"""Execution traces of Chakra, a file of each rank: written from a workload, and read as one.

`PREFIX.RANK.et` has messages, each behind its length; `PREFIX.json` the ranks of each group. Beside
what the format defines, a file of ours says the stage of its rank, and its nodes their nanoseconds
and the kind of a group, so that what is read is what was written.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightrig.harness.workloads import chakra_messages as format_
from lightrig.harness.workloads.chakra_messages import messages
from lightrig.harness.workloads.graph import (
    Device,
    Graph,
    Group,
    Kind,
    Node,
    Pattern,
    Workload,
    WorkloadError,
)

LARGEST = 10**14
"""Bytes of a message or collective above which a size is taken for a mistake."""
_PATTERNS = {
    format_.ALL_REDUCE: Pattern.ALL_REDUCE,
    format_.ALL_GATHER: Pattern.ALL_GATHER,
    format_.BROADCAST: Pattern.BROADCAST,
    format_.ALL_TO_ALL: Pattern.ALL_TO_ALL,
    format_.REDUCE_SCATTER: Pattern.REDUCE_SCATTER,
}
_NUMBERS = {pattern: number for number, pattern in _PATTERNS.items()}
_ATTRIBUTES = {
    **dict.fromkeys(("num_ops", "comm_type", "comm_size"), "int64_val"),
    "tensor_size": "uint64_val",
    **dict.fromkeys(("comm_src", "comm_dst", "comm_tag"), "int32_val"),
    **dict.fromkeys(("pg_name", "group_kind"), "string_val"),
    "is_cpu_op": "bool_val",
    "nanoseconds": "int64_val",
    "stage": "int64_val",
}
"""Kinds of the attributes that are written, which ASTRA-sim reads of these kinds alone."""


# ----------------------------------------------------------------------------------- write


def write(workload: Workload, prefix: Path) -> int:
    """Write the files of all ranks, the folded ones too; returns how many.

    Ranks are numbered as DP varies fastest, then TP, then PP. Raises `WorkloadError` for a workload
    whose data-parallel ranks are folded, and `OSError`.
    """
    if {"DP", "CP"} & workload.folded.keys():
        raise WorkloadError("traces are written of data-parallel ranks one by one")
    tensor = workload.folded.get("TP", 1)
    stages = max(workload.stages, default=0) + 1
    data = len(workload.graph_of) // stages

    def rank_of(simulated: int, position: int) -> int:
        stage, member = divmod(simulated, data)
        return (stage * tensor + position) * data + member

    groups: dict[tuple[int, ...], int] = {}
    used = [_used(workload, simulated) for simulated in range(len(workload.graph_of))]
    for simulated, named in enumerate(used):
        for position in range(tensor):
            for name in named:
                _number(groups, _members(named[name], name, simulated, position, tensor, rank_of))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    listed = {str(number): list(members) for members, number in groups.items()}
    prefix.with_name(f"{prefix.name}.json").write_text(json.dumps(listed), encoding="utf-8")
    for simulated, named in enumerate(used):
        for position in range(tensor):
            numbers = {
                name: groups[_members(group, name, simulated, position, tensor, rank_of)]
                for name, group in named.items()
            }
            rank = rank_of(simulated, position)
            stage = workload.stages[simulated] if workload.stages else 0
            content = bytearray(_metadata(stage))
            for number, node in enumerate(workload.graph(simulated).nodes):
                peer = rank_of(simulated + node.peer, position)
                content += _delimited(_message(number, node, rank, peer, numbers, named))
            prefix.with_name(f"{prefix.name}.{rank}.et").write_bytes(content)
    return workload.ranks


def _used(workload: Workload, simulated: int) -> dict[str, Group]:
    """Return the groups of a rank that its nodes name."""
    nodes = workload.graph(simulated).nodes
    names = {node.group for node in nodes if node.kind is Kind.COLLECTIVE}
    return {name: workload.groups[simulated][name] for name in sorted(names)}


def _members(
    group: Group, name: str, simulated: int, position: int, tensor: int, rank_of: Any
) -> tuple[int, ...]:
    if name == "tp":
        return tuple(rank_of(simulated, each) for each in range(tensor))
    return tuple(rank_of(member, position) for member in group.members)


def _number(groups: dict[tuple[int, ...], int], members: tuple[int, ...]) -> int:
    return groups.setdefault(members, len(groups) + 1)


def _metadata(stage: int) -> bytes:
    metadata = messages().metadata(version="0.0.4")
    _set(metadata, "stage", stage)
    return _delimited(metadata)


def _message(
    number: int,
    node: Node,
    rank: int,
    peer: int,
    groups: Mapping[str, int],
    named: Mapping[str, Group],
) -> Any:
    made = messages().node(id=number, name=node.name or node.kind.name, data_deps=node.needs)
    _set(made, "is_cpu_op", False)
    match node.kind:
        case Kind.COMPUTE:
            made.type = format_.COMPUTE
            made.duration_micros = -(-node.nanoseconds // 1000)
            _set(made, "num_ops", node.operations)
            _set(made, "tensor_size", node.written)
            _set(made, "nanoseconds", node.nanoseconds)
        case Kind.COLLECTIVE:
            made.type = format_.COLLECTIVE
            _set(made, "comm_type", _NUMBERS[node.pattern])
            _set(made, "comm_size", node.amount)
            _set(made, "pg_name", str(groups[node.group]))
            _set(made, "group_kind", named[node.group].kind)
        case _:
            sends = node.kind is Kind.SEND
            made.type = format_.SEND if sends else format_.RECEIVE
            _set(made, "comm_size", node.amount)
            _set(made, "comm_src", rank if sends else peer)
            _set(made, "comm_dst", peer if sends else rank)
            _set(made, "comm_tag", node.tag)
    return made


def _set(message: Any, name: str, value: object) -> None:
    attribute = message.attr.add(name=name)
    setattr(attribute, _ATTRIBUTES[name], value)


def _delimited(message: Any) -> bytes:
    content: bytes = message.SerializeToString()
    length, head = len(content), bytearray()
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + content


# ----------------------------------------------------------------------------------- read


@dataclass(frozen=True, slots=True)
class _Rank:
    path: Path
    stage: int
    nodes: tuple[Node, ...]
    ids: tuple[int, ...]


def files_of(prefix: Path) -> dict[int, Path]:
    """Return the files of the ranks of a prefix, by rank."""
    named = re.compile(re.escape(prefix.name) + r"\.(\d+)\.et")
    folder = prefix.parent
    found = (named.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return {int(match[1]): folder / match[0] for match in found if match}


def read(prefix: Path, device: Device | None = None) -> Workload:
    """Return the workload of a prefix's files; `device` times compute that has no duration.

    Raises `WorkloadError` with the file and node of what cannot be read, and `OSError`.
    """
    files = files_of(prefix)
    if not files:
        raise WorkloadError(f"{prefix}: there is no file {prefix.name}.0.et")
    for rank in range(len(files)):
        if rank not in files:
            missing = f"{prefix.name}.{rank}.et"
            raise WorkloadError(f"{prefix}: {missing} is missing, of {max(files) + 1} ranks")
    groups = _groups(prefix, len(files))
    ranks = []
    # Ranks that do the same share their nodes, which are most of the memory.
    known: dict[tuple[Node, ...], tuple[Node, ...]] = {}
    for rank in range(len(files)):
        found = _read_rank(files[rank], rank, len(files), device)
        ranks.append(replace(found, nodes=known.setdefault(found.nodes, found.nodes)))
    _check_messages(ranks)
    graphs: dict[tuple[Node, ...], int] = {}
    graph_of = [graphs.setdefault(rank.nodes, len(graphs)) for rank in ranks]
    first = {number: ranks[graph_of.index(number)] for number in range(len(graphs))}
    return Workload(
        tuple(Graph.of(nodes, str(first[number].path)) for nodes, number in graphs.items()),
        tuple(graph_of),
        tuple(_groups_of(rank, number, groups, len(ranks)) for number, rank in enumerate(ranks)),
        stages=tuple(rank.stage for rank in ranks),
        assumptions=(f"execution traces {prefix}, each rank of them simulated",),
    )


def _groups(prefix: Path, count: int) -> dict[str, tuple[int, ...]]:
    places = (
        prefix.with_name(f"{prefix.name}.json"),
        prefix.parent / "comm_groups.json",
        prefix.parent.parent / "comm_groups.json",
    )
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return {}
    try:
        document = json.loads(path.read_text("utf-8"))
        found = {str(name): tuple(map(int, members)) for name, members in document.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise WorkloadError(f"{path}: expected lists of ranks by group: {error}") from None
    for name, members in found.items():
        if wrong := [rank for rank in members if not 0 <= rank < count]:
            raise WorkloadError(f"{path}: group {name} has rank {wrong[0]}, of {count} ranks")
        if len(set(members)) < len(members) or not members:
            raise WorkloadError(f"{path}: group {name} is empty, or has a rank twice")
    return found


def _messages_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of a file, each with where it begins."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise WorkloadError(f"{path}: not all of it can be decompressed: {error}") from None
    at, end = 0, len(content)
    while at < end:
        began, length, shift = at, 0, 0
        while True:
            if at >= end or shift > 63:
                raise WorkloadError(f"{path}: byte {began}: the length of a message is cut off")
            byte = content[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if not length:
            return
        if at + length > end:
            raise WorkloadError(
                f"{path}: byte {began}: a message of {length} bytes is cut off after {end - at}"
            )
        yield began, content[at : at + length]
        at += length


def _read_rank(path: Path, rank: int, count: int, device: Device | None) -> _Rank:
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - of the extra

    kinds = messages()
    stage, found = 0, []
    for number, (began, content) in enumerate(_messages_of(path)):
        try:
            message = (kinds.node if number else kinds.metadata).FromString(content)
        except DecodeError as error:
            raise WorkloadError(f"{path}: byte {began}: no message of a trace: {error}") from None
        if number:
            found.append(message)
        else:
            stage = _attributes(message).get("stage", 0)
    found.sort(key=lambda message: message.id)
    ids = tuple(message.id for message in found)
    numbers = {name: number for number, name in enumerate(ids)}
    if len(numbers) < len(ids):
        twice = next(name for name, times in Counter(ids).items() if times > 1)
        raise WorkloadError(f"{path}: node {twice} is there twice")
    nodes = tuple(_node(path, message, numbers, rank, count, device) for message in found)
    return _Rank(path, stage, nodes, ids)


def _attributes(message: Any) -> dict[str, Any]:
    found = {}
    for attribute in message.attr:
        field = attribute.WhichOneof("value")
        found[attribute.name] = getattr(attribute, field) if field else None
    return found


def _node(
    path: Path,
    message: Any,
    numbers: Mapping[int, int],
    rank: int,
    count: int,
    device: Device | None,
) -> Node:
    where = f"{path}: node {message.id}"
    needs = []
    for need in {*message.data_deps, *message.ctrl_deps}:
        if need not in numbers:
            raise WorkloadError(f"{where}: needs node {need}, which is not there")
        needs.append(numbers[need])
    given, name = _attributes(message), message.name
    waited = tuple(sorted(needs))
    if message.type in {1, 2, 3}:
        return Node(Kind.COMPUTE, waited, name=name)
    if message.type == format_.COMPUTE:
        operations, written = int(given.get("num_ops") or 0), int(given.get("tensor_size") or 0)
        if (time := given.get("nanoseconds")) is None:
            time = message.duration_micros * 1000
            if not time and operations:
                if device is None:
                    raise WorkloadError(f"{where}: has operations and no duration: name a device")
                time = device.nanoseconds(operations, written)
        return Node(
            Kind.COMPUTE, waited, int(time), name=name, operations=operations, written=written
        )
    if message.type not in {format_.COLLECTIVE, format_.SEND, format_.RECEIVE}:
        raise WorkloadError(f"{where}: is of the unknown type {message.type}")
    amount = int(given.get("comm_size") or 0)
    if not 0 < amount <= LARGEST:
        raise WorkloadError(f"{where}: comm_size is {amount:,}, expected 1 to {LARGEST:,} bytes")
    if message.type == format_.COLLECTIVE:
        kind = given.get("comm_type")
        if kind not in _PATTERNS:
            raise WorkloadError(f"{where}: comm_type is {kind}, which is not simulated")
        group = str(given.get("pg_name") or "")
        # The kind of group is carried to `_groups_of` in front of the group's name.
        named = f"{given.get('group_kind') or _kind(group)}/{group}"
        return Node(Kind.COLLECTIVE, waited, 0, _PATTERNS[kind], amount, named, name=name)
    sends = message.type == format_.SEND
    peer = given.get("comm_dst" if sends else "comm_src") or 0
    if not isinstance(peer, int) or not 0 <= peer < count or peer == rank:
        raise WorkloadError(f"{where}: its peer is rank {peer}, of {count} ranks")
    kind = Kind.SEND if sends else Kind.RECEIVE
    tag = int(given.get("comm_tag") or 0)
    return Node(kind, waited, amount=amount, peer=peer - rank, tag=tag, name=name)


def _kind(group: str) -> str:
    """Return the kind of a group by its name: those of MLSynth begin with tp_ within a stage."""
    return "tp" if group.startswith("tp_") else "dp"


def _groups_of(
    rank: _Rank, number: int, groups: Mapping[str, tuple[int, ...]], count: int
) -> dict[str, Group]:
    found: dict[str, Group] = {}
    for at, node in enumerate(rank.nodes):
        if node.kind is not Kind.COLLECTIVE or node.group in found:
            continue
        kind, _, name = node.group.partition("/")
        members = groups.get(name) if name else tuple(range(count))
        if members is None or number not in members:
            problem = "is not known" if members is None else f"has no rank {number}"
            raise WorkloadError(f"{rank.path}: node {rank.ids[at]}: group {name!r} {problem}")
        found[node.group] = Group(kind, members, len(members))
    return found


def _check_messages(ranks: list[_Rank]) -> None:
    """Raise `WorkloadError` for a send that nobody receives, or a receive without a send."""
    sent: dict[tuple[int, int, int, int], list[str]] = defaultdict(list)
    received: dict[tuple[int, int, int, int], list[str]] = defaultdict(list)
    for number, rank in enumerate(ranks):
        for at, node in enumerate(rank.nodes):
            if node.kind is Kind.SEND:
                key = (number, number + node.peer, node.tag, node.amount)
                sent[key].append(f"{rank.path}: node {rank.ids[at]}")
            elif node.kind is Kind.RECEIVE:
                key = (number + node.peer, number, node.tag, node.amount)
                received[key].append(f"{rank.path}: node {rank.ids[at]}")
    for key in sorted({*sent, *received}):
        source, target, tag, amount = key
        ends = len(sent[key]), len(received[key])
        if ends[0] != ends[1]:
            where = (sent if ends[0] > ends[1] else received)[key][min(ends)]
            what = "send without a receive" if ends[0] > ends[1] else "receive without a send"
            raise WorkloadError(
                f"{where}: a {what}, from {source} to {target}, tag {tag}, {amount:,} bytes"
            )
