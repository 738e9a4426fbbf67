"""The Parquet data set: what the journal says, where any engine finds it."""

import dataclasses
import datetime
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import contexts, rows

from lightrig.harness import record
from lightrig.harness.record import (
    Context,
    Journal,
    JournalDamagedError,
    RecordError,
    Row,
    read_journal,
)

HEADER = {"run": "r1", "night": "2026-03-14", "seed": 7}

RUN = """
import sys
from pathlib import Path
import lightrig.harness.plugin.session
from lightrig.harness.record import Context, Journal, Row, write_dataset

folder = Path(sys.argv[1])
with Journal(folder / "j", {"run": "r1", "night": "2026-03-14"}) as journal:
    context = Context("opus", "test_pairs", ("Polatis 21877",), True, {"moved": 4})
    journal.append(context, Row("ocs 1->17", "outage", 41.5, None, 42.0, "ms", 5))
assert write_dataset(folder / "j", folder / "set")
print(*sys.modules)
"""


def read_dataset(root):
    from lightrig.harness.record.dataset_reading import open_dataset

    files = sorted(map(str, root.glob("testbed=*/night=*/*.parquet")))
    return open_dataset(files, str(root)).to_table().to_pandas(date_as_object=False)


@settings(max_examples=15)
@given(st.lists(st.tuples(contexts, st.lists(rows(), min_size=1, max_size=3)), max_size=3))
def test_the_data_set_equals_the_journal(run):
    import pandas as pd

    with tempfile.TemporaryDirectory() as folder:
        path, root = Path(folder, "j"), Path(folder, "set")
        with Journal(path, HEADER) as journal:
            for context, found in run:
                journal.append_many(context, found)
        root.mkdir()
        files = record.write_dataset(path, root)
        first = [file.read_bytes() for file in files]
        assert record.write_dataset(path, root) == files
        assert [file.read_bytes() for file in files] == first
        assert sorted(p for p in root.rglob("*") if p.is_file()) == sorted(files)
        frame = read_dataset(root)
        written = list(read_journal(path).rows())
    testbeds = {context.testbed for context, _ in written}
    assert len(files) == len(testbeds)
    assert len(frame) == len(written)
    for testbed in testbeds:
        mine = frame[frame["testbed"] == testbed].to_dict("records")
        expected = [(c, r) for c, r in written if c.testbed == testbed]
        for line, (context, row) in zip(mine, expected, strict=True):
            assert (line["run"], line["test"], line["subject"]) == ("r1", context.test, row.subject)
            assert (line["quantity"], line["unit"]) == (row.quantity, row.unit)
            assert (line["time_ns"], line["simulated"]) == (row.time_ns, context.simulated)
            assert line["value"] == float(row.value)
            for name in ("lower", "upper"):
                bound = getattr(row, name)
                assert pd.isna(line[name]) if bound is None else line[name] == float(bound)
            assert json.loads(line["conditions"]) == {**context.conditions, **row.conditions}
            assert len(line["instruments"]) == len(context.instruments)
            assert line["night"] == pd.Timestamp("2026-03-14")


def filled(fresh, context, row, **header):
    with fresh(**header) as journal:
        journal.append_many(context, [dataclasses.replace(row, time_ns=n) for n in range(300)])
        journal.append(dataclasses.replace(context, testbed="mixnet"), row)
        journal.close({"passed": 2})
    return journal.path


def test_one_file_a_testbed_in_its_place_with_the_header_inside(fresh, tmp_path, context, row):
    import pyarrow.parquet as pq

    root = tmp_path / "set"
    files = record.write_dataset(filled(fresh, context, row), root)
    assert [str(file.relative_to(root)) for file in files] == [
        "testbed=mixnet/night=2026-03-14/r1.parquet",
        "testbed=opus/night=2026-03-14/r1.parquet",
    ]
    metadata = pq.read_schema(files[0]).metadata
    assert metadata[b"lightrig.schema"] == b"3"
    assert json.loads(metadata[b"lightrig.header"]) == {**HEADER, "schema": 3}
    assert json.loads(metadata[b"lightrig.summary"]) == {"passed": 2}
    assert metadata[b"lightrig.complete"] == b"true"


def test_duckdb_queries_it_in_place(fresh, tmp_path, context, row):
    import duckdb

    root = tmp_path / "set"
    record.write_dataset(filled(fresh, context, row), root)
    record.write_dataset(filled(fresh, context, row, run="r2", night="2026-03-15"), root)
    found = duckdb.sql(
        f"""
        SELECT testbed, night, count(*), quantile_disc(value, 0.99), any_value(instruments[1]),
               any_value(CAST(conditions->>'moved' AS INT))
        FROM read_parquet('{root}/*/*/*.parquet', hive_partitioning = true)
        GROUP BY testbed, night ORDER BY testbed, night
        """
    ).fetchall()
    same = (41440000.0, "Polatis 21877", 4)
    assert found == [
        ("mixnet", datetime.date(2026, 3, 14), 1, *same),
        ("mixnet", datetime.date(2026, 3, 15), 1, *same),
        ("opus", datetime.date(2026, 3, 14), 300, *same),
        ("opus", datetime.date(2026, 3, 15), 300, *same),
    ]


def test_a_number_that_only_json_tells_from_a_truth_stays_one(fresh, tmp_path, row):
    plain = dataclasses.replace(row, conditions={})
    with fresh() as journal:
        for value in (1, True, 1.0):
            journal.append(Context("t", "test", (), True, {"a": value}), plain)
    record.write_dataset(journal.path, tmp_path / "set")
    found = list(read_dataset(tmp_path / "set")["conditions"])
    assert found == ['{"a":1}', '{"a":true}', '{"a":1.0}']


@pytest.mark.parametrize("name", ["a/b", "../up", "50 % off", "größe=1", "2026", "%2F"])
def test_any_name_of_a_testbed_is_a_partition(fresh, tmp_path, context, row, name):
    import duckdb

    with fresh() as journal:
        journal.append(dataclasses.replace(context, testbed=name), row)
    root = tmp_path / "set"
    (file,) = record.write_dataset(journal.path, root)
    assert file.resolve().parent.parent.parent == root
    assert list(read_dataset(root)["testbed"]) == [name]
    types = "{'testbed': VARCHAR}"
    query = f"SELECT testbed FROM read_parquet('{root}/*/*/*.parquet', hive_types = {types})"
    assert duckdb.sql(query).fetchall() == [(name,)]


def test_the_condition_of_a_row_stands_before_the_one_of_its_context(fresh, tmp_path, row):
    common = Context("t", "test", ({"serial": "1", "model": "N"},), True, {"moved": 1, "b": 2})
    with fresh() as journal:
        journal.append(common, dataclasses.replace(row, conditions={"moved": 4}))
    record.write_dataset(journal.path, tmp_path / "set")
    (found,) = read_dataset(tmp_path / "set").to_dict("records")
    assert found["conditions"] == '{"b":2,"moved":4}'
    assert list(found["instruments"]) == ['{"model":"N","serial":"1"}']


def test_a_torn_journal_is_recovered_and_marked(fresh, tmp_path, context, row):
    import pyarrow.parquet as pq

    path = filled(fresh, context, row)
    path.write_bytes(path.read_bytes()[:-40])
    files = record.write_dataset(path, tmp_path / "set")
    assert pq.read_schema(files[0]).metadata[b"lightrig.complete"] == b"false"
    assert len(read_dataset(tmp_path / "set")) == 300


def test_a_damaged_journal_replaces_nothing_and_leaves_nothing(fresh, tmp_path, context, row):
    root, path = tmp_path / "set", filled(fresh, context, row)
    files = record.write_dataset(path, root)
    before = [file.read_bytes() for file in files]
    lines = path.read_text().splitlines()
    lines[250] = "[0]"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(JournalDamagedError, match=":251: "):
        record.write_dataset(path, root)
    assert [file.read_bytes() for file in files] == before
    assert sorted(p for p in root.rglob("*") if p.is_file()) == sorted(files)


def test_more_rows_than_a_batch_stay_in_order(fresh, tmp_path, context, monkeypatch):
    monkeypatch.setattr("lightrig.harness.record.dataset._BATCH", 100)
    with fresh() as journal:
        journal.append_many(context, [Row("s", "q", n, None, None, "1", n) for n in range(250)])
    record.write_dataset(journal.path, tmp_path / "set")
    assert list(read_dataset(tmp_path / "set")["time_ns"]) == list(range(250))


def test_integers_that_a_double_cannot_hold_are_rounded(fresh, tmp_path, context):
    big = 2**62 + 1
    with fresh() as journal:
        journal.append(context, Row("s", "q", big, big, big, "1", big))
    record.write_dataset(journal.path, tmp_path / "set")
    found = read_dataset(tmp_path / "set").iloc[0]
    assert (found["value"], found["time_ns"]) == (float(2**62), big)


def test_a_run_that_writes_loads_no_library_that_reads(tmp_path):
    """Importing pandas alone takes longer than a short run."""
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    assert "pyarrow" in loaded
    assert not loaded & {"pandas", "duckdb", "fsspec", "paramiko"}


def test_negative_zero_keeps_its_sign(fresh, tmp_path, context):
    with fresh() as journal:
        journal.append(context, Row("s", "q", -0.0, None, None, "1", 0))
    record.write_dataset(journal.path, tmp_path / "set")
    assert math.copysign(1, read_dataset(tmp_path / "set").iloc[0]["value"]) == -1


def test_no_rows_are_no_file_and_an_empty_frame(fresh, tmp_path):
    with fresh() as journal:
        pass
    assert record.write_dataset(journal.path, tmp_path) == ()
    frame = read_dataset(tmp_path)
    assert len(frame) == 0
    assert {"testbed", "night", "value"} <= set(frame.columns)


def test_a_file_that_cannot_be_written_is_named(fresh, context, row):
    path = filled(fresh, context, row)
    with pytest.raises(RecordError, match="Not a directory"):
        record.write_dataset(path, path / "set")


def test_a_disk_that_is_full_keeps_what_was_there(fresh, tmp_path, context, row, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    root, path = tmp_path / "set", filled(fresh, context, row)
    files = record.write_dataset(path, root)
    before = [file.read_bytes() for file in files]
    monkeypatch.setattr("lightrig.harness.record.places.os.fsync", fails)
    with pytest.raises(RecordError, match="No space left"):
        record.write_dataset(path, root)
    assert [file.read_bytes() for file in files] == before
    assert sorted(p for p in root.rglob("*") if p.is_file()) == sorted(files)


def test_a_page_that_was_changed_on_its_disk_is_an_error(fresh, tmp_path, context, row):
    import pyarrow.parquet as pq

    from lightrig.harness.record.dataset_reading import open_dataset

    _, file = record.write_dataset(filled(fresh, context, row), tmp_path / "set")
    whole = file.read_bytes()
    values = pq.ParquetFile(file).metadata.row_group(0).column(8)  # time_ns, all different
    first = values.dictionary_page_offset or values.data_page_offset
    place = first + values.total_compressed_size - 1
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(OSError, match="CRC"):
        open_dataset([str(file)], str(tmp_path / "set")).to_table()


def test_a_column_whose_name_was_changed_is_an_error(fresh, tmp_path, context, row):
    """It would be read as missing values."""
    from lightrig.harness.record.dataset_reading import named, open_dataset

    _, file = record.write_dataset(filled(fresh, context, row), tmp_path / "set")
    file.write_bytes(file.read_bytes().replace(b"quantity", b"quantitx"))
    dataset = open_dataset([str(file)], str(tmp_path / "set"))
    with pytest.raises(RecordError, match="rows without quantity: a file of it is damaged"):
        named(dataset, ".*")
