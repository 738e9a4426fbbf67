"""SQL of others reads the results alone, and takes bounded memory and time."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from record.recorded import record

from lightrig.harness.record import QuestionError, Results
from lightrig.harness.record import bounded_query as bounds
from lightrig.harness.record.bounded_query import bounded_query

CANARY = "canary-of-this-account-5150"
ROWS = 23


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    record(place, "r1", "2026-03-14", rows=ROWS)
    return place


@pytest.fixture
def secret(tmp_path: Path, results: Path) -> Path:
    """A file beside the results, that a link in them leads to as well."""
    file = tmp_path / "secret.txt"
    file.write_text(CANARY)
    link = results / "notes.txt"
    link.unlink(missing_ok=True)
    link.symlink_to(file)
    return file


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT content FROM read_text('{secret}')",
        "SELECT content FROM read_blob('{secret}')",
        "FROM glob('{secret}')",
        "FROM '{secret}'",
        "FROM read_csv('{secret}', header=false)",
        "SELECT content FROM read_text('{results}/notes.txt')",
        "FROM read_parquet('{results}/rows/*/*/*.parquet')",
        "FROM read_csv('http://127.0.0.1:1/x.csv')",
        "SELECT * FROM rows; COPY rows TO '{secret}'",
        "COPY (SELECT 1) TO '{secret}'",
        "ATTACH '{secret}' AS a",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{secret}'",
        "FROM secrets",
        "FROM query('SELECT content FROM read_text(''{secret}'')')",
        "FROM query_table('{secret}')",
        "FROM sql",
    ],
)
def test_no_file_but_the_results_is_read(results: Path, secret: Path, sql: str) -> None:
    asked = sql.format(secret=secret, results=results)
    with pytest.raises(QuestionError) as refused:
        Results(results).query(asked)
    assert CANARY not in str(refused.value)
    assert secret.read_text() == CANARY


def test_a_process_answers_as_this_one(results: Path) -> None:
    sql = "SELECT test, count(*) AS n, sum(value) AS total FROM rows GROUP BY ALL ORDER BY test"
    found = bounded_query(str(results), sql)
    assert found["n"].sum() == ROWS
    assert found.equals(Results(results).query(sql))
    with pytest.raises(QuestionError, match="the views are rows, runs, tests and notes"):
        bounded_query(str(results), "FROM it_is_none")


def test_a_result_that_does_not_fit_is_refused(results: Path) -> None:
    with pytest.raises(QuestionError, match=r"Out of Memory|takes more than 4 GiB of memory"):
        bounded_query(str(results), "SELECT repeat('a', 4000000000)")


@pytest.mark.long
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('a', 4000000000)",
        "SELECT list_transform(range(400000000), x -> x + 1)",
        "SELECT string_agg(repeat('a', 100000), '') FROM range(60000)",
        "SELECT repeat('ab', 600000000) AS one",
    ],
)
def test_memory_is_bounded(results: Path, sql: str) -> None:
    """The peak is asked of the kernel, once the process has ended."""
    program = (
        "import resource, sys\n"
        "from lightrig.harness.record.bounded_query import bounded_query\n"
        "from lightrig.harness.record import QuestionError\n"
        "try:\n    bounded_query(sys.argv[1], sys.argv[2])\n"
        "except QuestionError:\n"
        "    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    command = [sys.executable, "-c", program, str(results), sql]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) << 10 < bounds.MOST_MEMORY


def test_a_query_is_ended_after_its_time(results: Path) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000) b"
    with pytest.raises(QuestionError, match=r"was ended after 2\.5 s; .* state --timeout"):
        bounded_query(str(results), endless, 2.5)
    listed = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # a process that has ended meanwhile
            listed.append(file.read_bytes())
    assert listed
    assert not [each for each in listed if str(results).encode() in each]
