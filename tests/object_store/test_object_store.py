"""Results in an S3 object store: a real server on loopback, in an environment of its own.

`make object-store` makes the environment, `.object-store`: the server's packages demand others
than ours.
"""

import os
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from record.recorded import record
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.record import Results, publish
from lightrig.harness.report.comparison import compare
from lightrig.harness.report.nights.series import read
from lightrig.harness.report.nights.source import Source

ROOT = Path(__file__).parents[2]
SERVER = Path(os.environ.get("LIGHTRIG_OBJECT_STORE", ROOT / ".object-store")) / "bin/moto_server"
SECRET = "not-in-any-file-7c1"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not SERVER.exists(), reason="no environment of the object store"),
]


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A bucket of an S3 server; the credentials are in the environment alone."""
    import pyarrow.fs

    with (
        subprocess.Popen(
            [SERVER, "-H", "127.0.0.1", "-p", "0"], stderr=subprocess.PIPE, text=True
        ) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        assert server.stderr is not None
        line = next(line for line in server.stderr if "Running on http" in line)
        threading.Thread(target=deque, args=(server.stderr, 0), daemon=True).start()
        patch.setenv("AWS_ENDPOINT_URL", line.split()[-1].strip())
        patch.setenv("AWS_ACCESS_KEY_ID", "lab")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        files = pyarrow.fs.S3FileSystem(
            endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_bucket_creation=True
        )
        files.create_dir("lab")
        yield "s3://lab/results"
        server.terminate()


def test_results_are_pushed_read_in_place_compacted_and_pulled(store: str, tmp_path: Path) -> None:
    import pandas as pd
    import pyarrow.fs

    local, back = tmp_path / "local", tmp_path / "back"
    runs = [f"202603{day:02}-021500-a" for day in range(1, 9)] + ["20260401-021500-a"]
    for number, run in enumerate(runs):
        night = f"{run[:4]}-{run[4:6]}-{run[6:8]}"
        record(local, run, night, rows=40 + number, simulated=False)

    def lightrig(*arguments: str) -> str:
        result = CliRunner().invoke(application("results"), ["results", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    lightrig("push", store, "--results", str(local))
    here, there = Results(local), Results(store)
    pd.testing.assert_frame_equal(here.frame(), there.frame())
    assert compare(here, runs[0], runs[7]) == compare(there, runs[0], runs[7])
    assert len(read(Source(local)).labs) == len(read(Source(store)).labs) == 1

    lightrig("compact", "--results", str(local))
    assert "copied" in lightrig("push", store, "--results", str(local))
    bucket = pyarrow.fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"])
    listed = bucket.get_file_info(pyarrow.fs.FileSelector("lab/results/rows", recursive=True))
    assert sum(each.path.endswith(".parquet") for each in listed) == 2, "a month and a night"
    pd.testing.assert_frame_equal(here.frame(), there.frame())
    pd.testing.assert_frame_equal(here.frame(run=runs[3]), there.frame(run=runs[3]))
    assert lightrig("push", store, "--results", str(local)).startswith("0 files")

    lightrig("pull", store, "--results", str(back))
    pd.testing.assert_frame_equal(here.frame(), Results(back).frame())
    assert Results(back).runs() == here.runs()

    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in content for content in stored)


def test_a_run_is_published_to_the_store(store: str, tmp_path: Path) -> None:
    import pandas as pd

    location = f"{store}-published"
    folder = record(tmp_path / "local", "20260314-021500-b")
    publish(folder, location)
    pd.testing.assert_frame_equal(Results(tmp_path / "local").frame(), Results(location).frame())
