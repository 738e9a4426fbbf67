"""Anything that a record may hold."""

from hypothesis import strategies as st

from harness.record import Context, Row, TestOutcome

WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(
    st.booleans(), INTEGERS, FLOATS, st.text(st.characters(codec="utf-8"), max_size=8)
)
CONDITIONS = st.dictionaries(WORDS, SCALARS, max_size=3)


@st.composite
def rows(draw):
    numbers = sorted(draw(st.lists(INTEGERS | FLOATS, min_size=3, max_size=3)))
    lower, value, upper = numbers
    return Row(
        draw(WORDS),
        draw(WORDS),
        value,
        draw(st.sampled_from([None, lower])),
        draw(st.sampled_from([None, upper])),
        draw(WORDS),
        draw(INTEGERS),
        draw(CONDITIONS),
    )


contexts = st.builds(
    Context,
    testbed=WORDS,
    test=WORDS,
    instruments=st.lists(WORDS | CONDITIONS, max_size=2).map(tuple),
    simulated=st.booleans(),
    conditions=CONDITIONS,
)

outcomes = st.builds(
    TestOutcome,
    nodeid=WORDS,
    outcome=WORDS,
    duration_s=st.floats(0, 1e9),
    details=st.dictionaries(
        WORDS,
        st.recursive(
            SCALARS | st.none(),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
            max_leaves=4,
        ),
        max_size=3,
    ),
)
