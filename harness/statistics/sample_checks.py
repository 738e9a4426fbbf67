"""Checks of shares and confidences; apart from arrays, since commands of a lab load no numpy."""

from lightrig.testbeds.errors import LightrigError


class SampleError(LightrigError):
    """Samples, a share or a confidence that no statistic can be computed from."""


def check_share(name: str, share: float) -> None:
    """Raise `SampleError` unless `share` and what it leaves lie between 0 and 1."""
    if not 0 < 1 - share < 1:
        raise SampleError(f"{name}: found {share}, expected a share between 0 and 1")


def check_confidence(confidence: float) -> None:
    """Raise `SampleError` unless `confidence` is at least 0.5 and below 1."""
    if not 0.5 <= confidence < 1:
        raise SampleError(f"confidence: found {confidence}, expected 0.5 to below 1")
