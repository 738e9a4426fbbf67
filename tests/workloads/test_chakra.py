"""Execution traces: written and read, bytes written by hand, and files that are wrong."""

import gzip
import json
import shutil

import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.workloads import chakra
from lightrig.harness.workloads.chakra_messages import messages
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Device, Kind, WorkloadError
from lightrig.harness.workloads.networks import DedicatedLinks
from lightrig.harness.workloads.simulator import Simulator
from lightrig.harness.workloads.transformer import workload
from lightrig.harness.workloads.transformer_sizes import Model, Parallelism

BANDWIDTHS = {"dp": 50.0, "pp": 50.0, "tp": 450.0}


def varint(number):
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def field(number, wire, content):
    return varint(number << 3 | wire) + content


def text(number, content):
    return field(number, 2, varint(len(content)) + content)


def attribute(name, value_field, content):
    """An attribute: its name is field 1; of a number the wire type is 0."""
    return text(10, text(1, name.encode()) + field(value_field, 0, varint(content)))


def named_group(name):
    return text(10, text(1, b"pg_name") + text(29, name.encode()))


def node(number, kind, *content, needs=()):
    packed = b"".join(map(varint, needs))
    made = field(1, 0, varint(number)) + text(2, b"n") + field(3, 0, varint(kind))
    made += text(5, packed) if needs else b""
    return made + b"".join(content)


def trace(*nodes):
    """The bytes of a file by the format's description alone: a length before each message."""
    return b"".join(varint(len(each)) + each for each in (text(1, b"0.0.4"), *nodes))


COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
INT32, INT64, UINT64 = 7, 9, 13


def compute(number, micros, needs=()):
    return node(number, COMPUTE, field(7, 0, varint(micros)), needs=needs)


def send(number, to, needs=(), tag=0, size=1000):
    return node(
        number,
        SEND,
        attribute("comm_size", INT64, size),
        attribute("comm_dst", INT32, to),
        attribute("comm_tag", INT32, tag),
        needs=needs,
    )


def receive(number, source, needs=(), tag=0, size=1000):
    return node(
        number,
        RECEIVE,
        attribute("comm_size", INT64, size),
        attribute("comm_src", INT32, source),
        attribute("comm_tag", INT32, tag),
        needs=needs,
    )


def reduce(number, needs=(), size=1000, kind=0):
    return node(
        number,
        COLLECTIVE,
        attribute("comm_type", INT64, kind),
        attribute("comm_size", INT64, size),
        needs=needs,
    )


@pytest.fixture
def two(tmp_path):
    """Writes two ranks' files; returns their prefix."""

    def write(first, second):
        for rank, content in enumerate((first, second)):
            (tmp_path / f"job.{rank}.et").write_bytes(content)
        return tmp_path / "job"

    return write


def test_bytes_by_the_description_alone_are_read(two):
    """5 us, a message of 1,000 bytes, 3 us, an all-reduce of both: ids need not be in order."""
    first = trace(compute(30, 5), send(10, 1, needs=[30]), reduce(20, needs=[10]))
    second = trace(receive(1, 0), compute(2, 3, needs=[1]), reduce(5, needs=[2]))
    found = chakra.read(two(first, second))
    assert [each.kind for each in found.graph(0).nodes] == [
        Kind.SEND,
        Kind.COLLECTIVE,
        Kind.COMPUTE,
    ]
    links = DedicatedLinks({"dp": 1.0, "pp": 1.0}, Timing(latency=10))
    # 5,000; the message 1,000 + 10; 3,000; the all-reduce 2 x (500 + 10).
    assert Simulator(found, links).run().step == 5000 + 1010 + 3000 + 1020


def test_a_compressed_file_is_read(two):
    plain = trace(compute(1, 5))
    assert chakra.read(two(gzip.compress(plain), plain)).graph(0).compute == 5000


def test_operations_are_timed_by_the_device(two):
    """2,000 operations at 4 a ns, or 900 bytes at 1 a ns: the slower counts."""
    timed = trace(
        node(1, COMPUTE, attribute("num_ops", INT64, 2000), attribute("tensor_size", UINT64, 900))
    )
    found = chakra.read(two(timed, timed), Device(4.0, 1.0))
    assert found.graph(0).compute == 900
    with pytest.raises(WorkloadError, match=r"job\.0\.et: node 1: .*name a device"):
        chakra.read(two(timed, timed))


@pytest.fixture(scope="module")
def step():
    model = Model(4, 256, 1024, 100, 4, 2, gated=True)
    return workload(model, Parallelism(2, 2, 2), 1024, Device(1e3, 1e3))


def test_what_is_written_is_read(step, tmp_path):
    """All eight ranks do then what the four simulated ones did, to the nanosecond."""
    assert chakra.write(step, tmp_path / "traces" / "job") == 8
    found = chakra.read(tmp_path / "traces" / "job")
    assert found.ranks == 8
    assert found.stages == (0, 0, 0, 0, 1, 1, 1, 1)
    timing = Timing(936, 12, 4800.0, 4, 2)
    times = [Simulator(each, DedicatedLinks(BANDWIDTHS, timing)).run() for each in (step, found)]
    assert times[0].step == times[1].step
    assert times[0].exposed == times[1].exposed
    assert found.traffic() == step.traffic()
    groups = json.loads((tmp_path / "traces" / "job.json").read_text())
    # DP varies fastest, then TP: ranks 0 and 1 are a ring, 0 and 2 a server.
    assert sorted(groups.values()) == [
        [0, 1],
        [0, 2],
        [1, 3],
        [2, 3],
        [4, 5],
        [4, 6],
        [5, 7],
        [6, 7],
    ]
    assert all(name.isdecimal() for name in groups)


def test_attributes_have_the_kinds_that_astra_sim_reads(step, tmp_path):
    """Of another kind it takes them for 0."""
    chakra.write(step, tmp_path / "job")
    kinds = {}
    content = (tmp_path / "job.0.et").read_bytes()
    at, first = 0, True
    while at < len(content):
        length = shift = 0
        while True:
            byte = content[at]
            at, length, shift = at + 1, length | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        if not first:
            message = messages().node.FromString(content[at : at + length])
            kinds |= {one.name: one.WhichOneof("value") for one in message.attr}
        at, first = at + length, False
    assert kinds["is_cpu_op"] == "bool_val"
    assert kinds["num_ops"] == kinds["comm_type"] == kinds["comm_size"] == "int64_val"
    assert kinds["tensor_size"] == "uint64_val"
    assert kinds["comm_src"] == kinds["comm_dst"] == kinds["comm_tag"] == "int32_val"
    assert kinds["pg_name"] == "string_val"


GOOD = trace(compute(1, 5), send(2, 1, needs=[1]), reduce(3, needs=[2]))
OTHER = trace(receive(1, 0), reduce(2, needs=[1]))


@pytest.mark.parametrize(
    ("first", "second", "printed"),
    [
        (GOOD[:-3], OTHER, r"job\.0\.et: byte \d+: a message of \d+ bytes is cut off after"),
        (GOOD + b"\xff", OTHER, r"job\.0\.et: byte \d+: the length of a message is cut off"),
        (
            gzip.compress(GOOD, mtime=0)[:-12],
            OTHER,
            r"job\.0\.et: not all of it can be decompressed",
        ),
        (trace(b"\x0a\xff\xff"), OTHER, r"job\.0\.et: byte \d+: no message of a trace"),
        (
            trace(compute(1, 5, [2]), compute(2, 5, [1])),
            trace(),
            r"job\.0\.et: node \d+ needs itself",
        ),
        (
            trace(compute(1, 5, [9])),
            trace(),
            r"job\.0\.et: node 1: needs node 9, which is not there",
        ),
        (trace(compute(1, 5), compute(1, 6)), trace(), r"job\.0\.et: node 1 is there twice"),
        (
            GOOD,
            trace(reduce(2)),
            r"job\.0\.et: node 2: a send without a receive, from 0 to 1, tag 0",
        ),
        (trace(reduce(2)), OTHER, r"job\.1\.et: node 1: a receive without a send"),
        (GOOD, trace(receive(1, 0, tag=4), reduce(2)), r"node 2: a send without a receive"),
        (trace(send(2, 7)), trace(), r"job\.0\.et: node 2: its peer is rank 7, of 2 ranks"),
        (trace(reduce(2, size=0)), trace(), r"job\.0\.et: node 2: comm_size is 0"),
        (trace(reduce(2, size=10**15)), trace(), r"node 2: comm_size is 1,000,000,000,000,000"),
        (trace(reduce(2, kind=9)), trace(), r"node 2: comm_type is 9, which is not simulated"),
        (trace(node(2, 0)), trace(), r"node 2: is of the unknown type 0"),
        (
            trace(
                node(
                    2,
                    COLLECTIVE,
                    attribute("comm_size", INT64, 9),
                    attribute("comm_type", INT64, 0),
                    named_group("8"),
                )
            ),
            trace(),
            r"job\.0\.et: node 2: group '8' is not known",
        ),
    ],
)
def test_what_is_wrong_is_located(two, first, second, printed):
    with pytest.raises(WorkloadError, match=printed):
        chakra.read(two(first, second))


def test_members_that_disagree_are_refused(two):
    found = chakra.read(two(trace(reduce(1, size=1000)), trace(reduce(1, size=2000))))
    with pytest.raises(
        WorkloadError, match=r"disagree: ALL_REDUCE of 1000 bytes, ALL_REDUCE of 2000"
    ):
        Simulator(found, DedicatedLinks(BANDWIDTHS, Timing())).run()


def test_a_collective_without_its_other_member_is_refused(two):
    found = chakra.read(two(trace(reduce(1)), trace(compute(1, 1))))
    with pytest.raises(WorkloadError, match="rank 0 waits for ever in a collective"):
        Simulator(found, DedicatedLinks(BANDWIDTHS, Timing())).run()


def test_unknown_attributes_are_passed_over(two):
    odd = trace(node(1, COMPUTE, field(7, 0, varint(5)), attribute("mood", INT64, 3)))
    assert chakra.read(two(odd, odd)).graph(0).compute == 5000


def test_a_missing_rank_is_named(two, tmp_path):
    prefix = two(GOOD, OTHER)
    shutil.copy(tmp_path / "job.1.et", tmp_path / "job.3.et")
    with pytest.raises(WorkloadError, match=r"job\.2\.et is missing, of 4 ranks"):
        chakra.read(prefix)


def test_a_group_with_a_rank_that_is_not_there_is_named(two, tmp_path):
    prefix = two(GOOD, OTHER)
    (tmp_path / "job.json").write_text('{"1": [0, 5]}')
    with pytest.raises(WorkloadError, match=r"job\.json: group 1 has rank 5, of 2 ranks"):
        chakra.read(prefix)


def test_the_command_writes_and_reads_traces(tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: small\n"
        "model: {layers: 4, width: 256, hidden: 1024, vocabulary: 100}\n"
        "parallelism: {data: 2, tensor: 2, pipeline: 2}\n"
        "batch: {sequences: 8, length: 128}\n"
        "device: {tera_operations: 1, memory_gb_per_s: 1000}\n"
    )

    def simulate(*arguments):
        return CliRunner().invoke(application(), ["simulate", *map(str, arguments), "--json"])

    prefix = tmp_path / "traces" / "small"
    written = simulate(job, "fat-tree", "--mode", "packet", "--write-traces", prefix)
    assert written.exit_code == 0, written.output
    found = simulate(prefix, "fat-tree", "--mode", "packet")
    assert found.exit_code == 0, found.output
    steps = [json.loads(each.stdout)["step_s"] for each in (written, found)]
    assert steps[0] == steps[1]
    (tmp_path / "traces" / "small.0.et").write_bytes(b"\x05abc")
    wrong = simulate(prefix, "fat-tree")
    assert wrong.exit_code == 2
    assert "small.0.et: byte 0" in wrong.output
