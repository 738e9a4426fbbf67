"""Single errors, and a slip of the pattern now and then with 200 errors at once."""

from tests.campaigns.hard_labs.bits import AT_LIMIT, BELOW, BitErrors


def _errors(draws, mean, looks):
    """Half of the errors are of slips."""
    return draws.poisson(mean / 2, looks) + 200 * draws.poisson(mean / 2 / 200, looks)


LAB = BitErrors(errors=_errors, mean=4_000.0, declined=(AT_LIMIT, BELOW))
