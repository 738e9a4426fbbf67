import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.testbeds import RangeError, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("server0", ["server0"]),
        ("server[0-2]", ["server0", "server1", "server2"]),
        ("ocs.[34,33,36,35]", ["ocs.34", "ocs.33", "ocs.36", "ocs.35"]),
        ("ocs.[1-2,7]", ["ocs.1", "ocs.2", "ocs.7"]),
        ("s[0-1].p[0-1]", ["s0.p0", "s0.p1", "s1.p0", "s1.p1"]),
        ("r[08-10]", ["r08", "r09", "r10"]),
        ("r[5]", ["r5"]),
    ],
)
def test_ranges_run_in_order_the_last_fastest(text, names):
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("ocs.[1-", 4, "'[' without ']'"),
        ("ocs.1]", 5, "']' without '['"),
        ("ocs.[]", 5, "found ''"),
        ("ocs.[1,]", 7, "found ''"),
        ("ocs.[a]", 5, "found 'a'"),
        ("ocs.[1,4-2]", 7, "downwards"),
        ("ocs.[0-99999]", 5, "longer than"),
        ("s[0-999].p[0-999]", 10, "more than"),
        ("a[[1]]", 2, "found '[1'"),
    ],
)
def test_malformed_range_has_its_place(text, offset, message):
    with pytest.raises(RangeError) as caught:
        expand(text)
    assert message in str(caught.value)
    assert caught.value.offset == offset


@given(st.lists(st.integers(0, 999), min_size=1, max_size=30))
def test_a_list_keeps_its_order(numbers):
    assert expand(f"ocs.[{','.join(map(str, numbers))}]") == [f"ocs.{n}" for n in numbers]


@given(st.integers(0, 50), st.integers(0, 20), st.integers(0, 50), st.integers(0, 20))
def test_two_ranges_are_row_major(a, a_more, b, b_more):
    expected = [f"s{i}.p{j}" for i in range(a, a + a_more + 1) for j in range(b, b + b_more + 1)]
    assert expand(f"s[{a}-{a + a_more}].p[{b}-{b + b_more}]") == expected


@given(st.text(alphabet="ab0123[],-. ", max_size=30))
def test_nothing_but_a_range_error_is_raised(text):
    offset, names = 0, ["none"]
    try:
        names = expand(text)
    except RangeError as error:
        offset = error.offset
    assert 0 <= offset <= len(text)
    assert names or not text
