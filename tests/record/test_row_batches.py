"""Rows of a journal as columns: the same as one by one, and damage is found as there."""

import math
import zlib
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightrig.harness.record import Context, JournalDamagedError, Row, read_journal

TEXTS = st.sampled_from(["ocs 1->17", "a,b", 'quo"ted', "back\\slash", "ü", "null", "{", ",{", "5"])
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(-1e18, 1e18)
CONDITIONS = st.dictionaries(TEXTS, st.integers(0, 9) | TEXTS | st.booleans(), max_size=2)


@st.composite
def rows(draw):
    lower, value, upper = sorted(draw(st.tuples(NUMBERS, NUMBERS, NUMBERS)))
    bounds = draw(st.sampled_from([(lower, upper), (None, upper), (lower, None), (None, None)]))
    time_ns = draw(st.integers(-(2**60), 2**60))
    return Row(draw(TEXTS), draw(TEXTS), value, *bounds, draw(TEXTS), time_ns, draw(CONDITIONS))


def flat(batch):
    columns = [
        batch.contexts.tolist(),
        *([t.names[code] for code in t.codes.tolist()] for t in (batch.subject, batch.quantity)),
        *(
            [None if math.isnan(number) else number for number in numbers.tolist()]
            for numbers in (batch.value, batch.lower, batch.upper)
        ),
        [batch.unit.names[code] for code in batch.unit.codes.tolist()],
        batch.time_ns.tolist(),
        [batch.conditions.names[code] for code in batch.conditions.codes.tolist()],
    ]
    return list(zip(*columns, strict=True))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(found=st.lists(rows(), min_size=1, max_size=6))
def test_columns_and_single_rows_agree(fresh, context, found):
    journal = fresh()
    other = Context("opus", "test_other", (), False)
    for number, row in enumerate(found):
        journal.append((context, other)[number % 2], row)
    journal.close()
    record = read_journal(journal.path)

    columns = [each for batch in record.batches() for each in flat(batch)]
    numbers = {id(each): number for number, each in record.contexts.items()}
    single = [
        (
            *(numbers[id(of)], row.subject, row.quantity, float(row.value)),
            *(None if bound is None else float(bound) for bound in (row.lower, row.upper)),
            *(row.unit, row.time_ns, dict(row.conditions)),
        )
        for of, row in record.rows()
    ]

    assert columns == single


@pytest.mark.parametrize(
    ("written", "damaged"), [(b"41440000", b"41440001"), (b'"outage"', b'"Outage"')]
)
def test_columns_of_a_changed_line_are_refused(fresh, context, row, written, damaged):
    journal = fresh()
    journal.append_many(context, [row] * 3)
    journal.close()
    data = journal.path.read_bytes()
    place = data.rindex(written)
    journal.path.write_bytes(data[:place] + damaged + data[place + len(written) :])

    batches = read_journal(journal.path).batches()

    assert len(next(batches)) == 2, "the rows before the damage"
    with pytest.raises(JournalDamagedError, match="not what was written"):
        next(batches)


@pytest.mark.parametrize(
    "bounds", [b"41440001,null", b"null,41439999"], ids=["lower-above-value", "upper-below-value"]
)
def test_columns_with_one_value_outside_its_bounds_are_refused(fresh, context, row, bounds):
    """The line's checksum is right: a program wrote it so."""
    journal = fresh()
    journal.append_many(context, [replace(row, value=41440000, lower=None, upper=None)] * 3)
    journal.close()
    lines = journal.path.read_bytes().splitlines(keepends=True)
    (place,) = [n for n, line in enumerate(lines) if line.startswith(b"[")][1:2]
    head, _, _ = lines[place].replace(b"null,null", bounds).rpartition(b',"')
    lines[place] = b'%b,"%08x"]\n' % (head, zlib.crc32(head + b"]"))
    journal.path.write_bytes(b"".join(lines))

    with pytest.raises(JournalDamagedError, match=r"4: outage: (lower|upper) 4.* value 41440000"):
        list(read_journal(journal.path).batches())
