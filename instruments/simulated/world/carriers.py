"""Light in one fiber by wavelength: the carriers of a transmitter, and the lanes that see them.

All carriers of a transmitter have the same power, so a fiber's power and its transmitter tell them.
"""

from lightrig.testbeds import TransceiverSpec


def shares_of_lanes(
    receiver: TransceiverSpec | None, sender: TransceiverSpec | None
) -> list[float]:
    """Return the share of a fiber's power that each lane of a receiver on this fiber sees.

    A receiver of several wavelengths parts them by its filters; one of a single wavelength has
    none, and sees all light together. Where the PMD of an end is not stated, both are alike.
    """
    sharing = (receiver.wavelengths if receiver else None) or 1
    ends = [kind.known_pmd if kind else None for kind in (receiver, sender)]
    if sharing == 1:
        return [1.0]
    if ends[0] is None or ends[1] is None:
        return [1 / sharing] * sharing
    centers = [(low + high) / 2 for low, high in ends[1].bands]
    return [sum(low <= nm <= high for nm in centers) / len(centers) for low, high in ends[0].bands]


def reads(receiver: TransceiverSpec | None, sender: TransceiverSpec | None) -> bool:
    """Whether a receiver can read the light of a transmitter, by their PMDs if both are stated."""
    ends = [kind.known_pmd if kind else None for kind in (receiver, sender)]
    return ends[0] is None or ends[1] is None or ends[0].deaf_to(ends[1]) is None
