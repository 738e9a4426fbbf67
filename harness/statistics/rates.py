"""Rate of events that come at random: exact one-sided bounds from a count and the time watched.

Source: F. Garwood, Biometrika 28 (1936) 437-442: the upper bound of the mean of a Poisson
distribution, after k events, is the mean at which k or fewer have the probability 1 - confidence;
half a quantile of chi-squared with 2 (k + 1) degrees of freedom. After none it is -ln(1 -
confidence), "the rule of three" at 95 %.
"""

import scipy

CONFIDENCE = 0.95
"""Of each one-sided bound."""


def most_events(count: int, confidence: float = CONFIDENCE) -> float:
    """Return the upper bound of the mean number of events, of which `count` >= 0 were seen."""
    return float(scipy.special.gammaincinv(count + 1, confidence))


def least_events(count: int, confidence: float = CONFIDENCE) -> float:
    """Return the lower bound of the mean number of events; 0 where none was seen."""
    return float(scipy.special.gammaincinv(count, 1 - confidence)) if count else 0.0


def rate_sentence(count: int, hours: float, events: str = "flaps", unit: str = "link hours") -> str:
    """Return a count with its rate: "0 flaps in 5,184 link hours: at most 5.8e-4 an hour".

    hours: the time watched, above 0 for a bound. events, unit: plural names of both.
    """
    noun = events.removesuffix("s") if count == 1 else events
    watched = f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
    found = f"{count:,} {noun} in {watched} {unit}"
    if hours <= 0:
        return f"{found}: nothing watched"
    most = _rate(most_events(count) / hours)
    if not count:
        return f"{found}: at most {most} an hour"
    return f"{found}: {_rate(least_events(count) / hours)} to {most} an hour"


def _rate(value: float) -> str:
    """Return a rate with two digits: "5.8e-4", "0.12", "31", "230"."""
    if value == 0 or 0.01 <= value < 100:
        return f"{value:.2g}"
    if value >= 100:
        return f"{float(f'{value:.1e}'):,.0f}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
