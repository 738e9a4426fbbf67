"""Frame loss ratio behind a Reed-Solomon code: of a bit error ratio, and bounded by a histogram.

A code word with more symbol errors than the code corrects is lost, with every frame that it has
bits of. Code words that are lost are too rare to be counted where a link is good; the histogram of
symbol errors of the corrected ones shows how fast they become rarer.

Sources: IEEE 802.3, clauses 91 and 119 (codes, two code words interleaved from 200 Gb/s on);
frames that a lost code word takes: M. Brown, brown_3bj_02_0912, slide 7, 1 + 512/5280 as P. Anslow
quotes it (list of the 100GNGOPTX study group, 2012-11-23). Here preamble, gap and the data of the
code word count, 1 + 672/5140, since this reproduces the standard's pairs of bit error ratio and
frame loss ratio (124.1.1, 140.1.1); those pairs are recalled, not looked up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import scipy

from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.samples import SampleError, check_confidence

SYMBOL_BITS = 10
MESSAGE_BITS = 5140
"""Bits of a code word that carry data, in RS(528,514) and RS(544,514)."""

FRAME_BITS = 672
"""Bits of a frame of 64 octets with preamble and the least gap between frames."""


@dataclass(frozen=True, slots=True)
class Code:
    """A Reed-Solomon code of 10-bit symbols.

    Attributes:
        symbols: of a code word.
        correctable: symbol errors of a code word that it corrects.
        interleaved: code words between which a frame's bits are spread.
    """

    symbols: int
    correctable: int
    interleaved: int = 1


@dataclass(frozen=True, slots=True)
class FrameLoss:
    """A frame loss ratio with its bounds.

    Attributes:
        value: without margin for the statistics of the counts.
        lower, upper: two-sided at `confidence`; `upper` is extrapolated unless `anchor` is None.
        anchor: number of symbol errors from which on code words were extrapolated.
        reason: one sentence for people: the code words behind it, or why nothing was extrapolated.
    """

    value: float
    lower: float
    upper: float
    confidence: float
    anchor: int | None
    reason: str


def frame_loss_of_codewords(ratio: float, code: Code) -> float:
    """Return the ratio of 64-octet frames lost, of the ratio of code words lost.

    Of interleaved code words one loses the frames of all. An upper bound, since two lost code words
    may lose the same frames.
    """
    frames = 1 + FRAME_BITS / (code.interleaved * MESSAGE_BITS)
    return min(code.interleaved * ratio * frames, 1.0)


def frame_loss_of_bit_errors(ratio: float, code: Code) -> float:
    """Return the frame loss ratio of a bit error ratio, where bit errors are independent."""
    symbol = -math.expm1(SYMBOL_BITS * math.log1p(-ratio)) if ratio < 1 else 1.0
    lost = float(scipy.special.bdtrc(code.correctable, code.symbols, symbol))
    return frame_loss_of_codewords(lost, code)


def frame_loss_of_histogram(
    bins: Sequence[tuple[int, int, int]],
    uncorrectable: int,
    codewords: int,
    code: Code,
    confidence: float = 0.95,
) -> FrameLoss:
    """Bound the frame loss ratio by counts of code words, by their number of symbol errors.

    The bound is the least of two kinds, at a joint confidence (Bonferroni). By the lost code words
    themselves (Clopper and Pearson). And extrapolated: the share of code words with k or more
    symbol errors falls at least as fast beyond a bin as within it. This holds if the logarithm of
    that share is concave in k, as for independent errors, for bursts of any constant strength and
    for a geometric tail; it does not for errors that come in two strengths, such as a link that is
    bad for a part of the time. Where the counts contradict it at `confidence`, nothing is
    extrapolated.

    bins: least and greatest number of symbol errors, and code words; those without error too.
    uncorrectable: code words that were lost, in no bin.
    codewords: all of the gate, lost ones included.

    Raises `SampleError` for counts that cannot be.
    """
    check_confidence(confidence)
    ordered = sorted(bins)
    counted = sum(count for _, _, count in ordered) + uncorrectable
    if (
        codewords < 1
        or not 0 <= counted <= codewords
        or min((count for _, _, count in ordered), default=0) < 0
    ):
        raise SampleError(f"code words: found {counted} in bins, of {codewords}")
    lost = code.correctable + 1
    edges = [low for low, _, _ in ordered if 0 < low < lost]
    survivors = {
        edge: uncorrectable + sum(count for low, _, count in ordered if low >= edge)
        for edge in edges
    } | {lost: uncorrectable}
    pairs = [
        (a, b)
        for a, b in zip(edges, [*edges[1:], lost], strict=True)
        if survivors[a] and b - a < lost
    ]
    each = 1 - (1 - confidence) / (2 * len(pairs) + 1)
    low, high = clopper_pearson(uncorrectable, codewords, each)
    value, anchor = uncorrectable / codewords, None
    reason = f"{uncorrectable:,} of {codewords:.4g} code words were lost"
    if not _is_concave(pairs, survivors, each):
        reason += "; not extrapolated: more code words have many symbol errors than few explain"
    else:
        for a, b in pairs:
            steps = (lost - a) / (b - a)
            share = clopper_pearson(survivors[a], codewords, each)[1]
            falls = clopper_pearson(survivors[b], survivors[a], each)[1]
            if (bound := share * falls**steps) < high:
                high, anchor = bound, a
                value = survivors[a] / codewords * (survivors[b] / survivors[a]) ** steps
        if anchor is not None:
            value = max(value, low)
            reason += (
                f"; extrapolated from {survivors[anchor]:,} with {anchor} or more symbol errors"
            )
    return FrameLoss(
        frame_loss_of_codewords(value, code),
        low,  # each lost code word loses frames of at least its own length
        frame_loss_of_codewords(high, code),
        confidence,
        anchor,
        reason,
    )


def _is_concave(
    pairs: Sequence[tuple[int, int]], survivors: dict[int, int], confidence: float
) -> bool:
    """Whether no later fall per symbol error is surely slower than an earlier one."""
    slowest = math.inf
    for a, b in pairs:
        low, high = clopper_pearson(survivors[b], survivors[a], confidence)
        if low ** (1 / (b - a)) > slowest:
            return False
        slowest = min(slowest, high ** (1 / (b - a)))
    return True
