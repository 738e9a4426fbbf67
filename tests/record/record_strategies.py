"""Anything that a record may hold."""

from hypothesis import strategies as st

from lightrig.harness.record import Context, Row, TestOutcome

TERMS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(
    st.booleans(), INTEGERS, FLOATS, st.text(st.characters(codec="utf-8"), max_size=8)
)
CONDITIONS = st.dictionaries(TERMS, SCALARS, max_size=3)


@st.composite
def rows(draw):
    numbers = sorted(draw(st.lists(INTEGERS | FLOATS, min_size=3, max_size=3)))
    lower, value, upper = numbers
    return Row(
        draw(TERMS),
        draw(TERMS),
        value,
        draw(st.sampled_from([None, lower])),
        draw(st.sampled_from([None, upper])),
        draw(TERMS),
        draw(INTEGERS),
        draw(CONDITIONS),
    )


contexts = st.builds(
    Context,
    testbed=TERMS,
    test=TERMS,
    instruments=st.lists(TERMS | CONDITIONS, max_size=2).map(tuple),
    simulated=st.booleans(),
    conditions=CONDITIONS,
)

outcomes = st.builds(
    TestOutcome,
    nodeid=TERMS,
    outcome=TERMS,
    duration_s=st.floats(0, 1e9),
    details=st.dictionaries(
        TERMS,
        st.recursive(
            SCALARS | st.none(),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TERMS, inner, max_size=2),
            max_leaves=4,
        ),
        max_size=3,
    ),
)
