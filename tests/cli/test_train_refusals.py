"""Scripts that cannot run on circuits: refused by name and line, before a lab is touched."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.jobs.script_calls import calls_that_cannot_run

RPC = """import os
import torch.distributed.rpc as rpc

rpc.init_rpc(f"worker{os.environ['RANK']}")
"""


def test_a_script_of_remote_calls_is_refused_by_name(tmp_path: Path) -> None:
    """Exit 2, as for what is invalid; the testbed's switches have no address that answers."""
    script = tmp_path / "rpc.py"
    script.write_text(RPC)
    given = ["train", "testbeds/opus.yaml", "--instruments", "hardware", "--", str(script)]
    done = CliRunner().invoke(application("train"), given)
    assert done.exit_code == 2, done.output
    assert f"{script}:4: torch.distributed.rpc.init_rpc cannot run here: ranks" in done.stderr


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.distributed.rpc.init_rpc('a')",
        "import torch.distributed as dist\ndist.rpc.init_rpc('a')",
        "from torch.distributed import rpc\nrpc.init_rpc('a')",
        "from torch.distributed.rpc import init_rpc as begin\nbegin('a')",
        "import torch.distributed.autograd as dist_autograd\nwith dist_autograd.context(): pass",
        "import torch.distributed as dist\ndist.init_process_group('mpi')",
        "from torch.distributed import init_process_group\ninit_process_group(backend='cpu:ucc')",
    ],
)
def test_calls_are_found_by_what_their_names_stand_for(source: str) -> None:
    (found,) = calls_that_cannot_run(source)
    assert found.startswith("2: ")


@pytest.mark.parametrize(
    "source",
    [
        "import torch.distributed.rpc",  # which a script may import for its types
        "def init_rpc(): pass\ninit_rpc()",
        "import torch.distributed as dist\ndist.init_process_group('cpu:gloo,cuda:nccl')",
        "import torch.distributed as dist\ndist.init_process_group()",
        "import torch.distributed as dist, os\ndist.init_process_group(os.environ['BACKEND'])",
    ],
)
def test_other_scripts_are_not_refused(source: str) -> None:
    assert calls_that_cannot_run(source) == []


def test_the_examples_run() -> None:
    for example in Path("examples").glob("train_*.py"):
        assert calls_that_cannot_run(example.read_text()) == [], example
