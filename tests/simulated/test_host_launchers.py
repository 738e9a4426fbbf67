"""Command lines of launchers, ours included, on a simulated server."""

import shlex

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lightrig.instruments.jobs.simulated.host_launchers import LaunchError, launched
from lightrig.instruments.jobs.traffic.launchers import LaunchError as CannotLaunchError
from lightrig.instruments.jobs.traffic.launchers import Mpirun, Srun

PROGRAM = ("all_reduce_perf", "-b", "8")


def test_mpirun_fills_hosts_in_their_order() -> None:
    command = (
        "mpirun --allow-run-as-root --mca btl tcp --host b:2,a:1 -np 3 -x NCCL_DEBUG=WARN "
        "--tag-output /opt/all_reduce_perf -b 8"
    )
    launch = launched(shlex.split(command))
    assert launch.hosts == ("b", "b", "a")
    assert launch.environment == {"NCCL_DEBUG": "WARN"}
    assert launch.argv == ("/opt/all_reduce_perf", "-b", "8")
    assert launch.printed("one\ntwo\n") == "[1,0]<stdout>:one\n[1,0]<stdout>:two\n"


def test_mpirun_has_no_more_ranks_than_slots() -> None:
    with pytest.raises(LaunchError, match="not enough slots"):
        launched(["mpirun", "--host", "a:1,b:1", "-np", "3", "x"])


def test_srun_sorts_nodes_by_default() -> None:
    command = shlex.split("srun --nodelist=b,a --ntasks-per-node=2 -l x")
    assert launched(command).hosts == ("a", "a", "b", "b")
    assert launched(command).prefix == "0: "
    assert launched(shlex.split("srun -m arbitrary -w b,a,a x")).hosts == ("b", "a", "a")


def test_variables_before_a_launcher() -> None:
    launch = launched(shlex.split("env A=1 mpirun --host a -x B=2 x"))
    assert (launch.environment, launch.argv) == ({"A": "1", "B": "2"}, ("x",))


@pytest.mark.parametrize(
    "command", ["mpirun --host a", "mpirun --no-such x", "srun x", "srun --what=1 x", "env A=1"]
)
def test_bad_launcher_arguments_are_errors(command: str) -> None:
    with pytest.raises(LaunchError):
        launched(command.split())


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 3)), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["NCCL_DEBUG", "NCCL_IB_HCA"]), st.sampled_from(["1", "=x"])),
)
def test_commands_of_the_launchers_are_parsed(
    hosts: list[tuple[str, int]], environment: dict[str, str]
) -> None:
    unique = dict(hosts)
    ranks = tuple(host for host, count in unique.items() for _ in range(count))
    for launcher in (Mpirun(options=("--bind-to", "none")), Srun(options=("--mpi=pmix",))):
        launch = launched(launcher.command(PROGRAM, ranks, environment))
        assert (launch.hosts, launch.argv) == (ranks, PROGRAM)
        assert launch.environment == environment


def test_ranks_that_a_launcher_cannot_place() -> None:
    with pytest.raises(CannotLaunchError, match="side by side"):
        Mpirun().command(PROGRAM, ("a", "b", "a"), {})
    with pytest.raises(CannotLaunchError, match="comma: NCCL_IB_HCA=a,b"):
        Srun().command(PROGRAM, ("a", "b"), {"NCCL_IB_HCA": "a,b"})
