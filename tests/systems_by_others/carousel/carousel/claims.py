"""Figures of the paper that arithmetic answers."""

from carousel.planning import rotation
from lightrig.systems import Computed, exactly


def _matchings() -> Computed:
    return exactly(len(rotation(4)), "four servers, as in the prototype")


COMPUTED = {"matchings": _matchings}
