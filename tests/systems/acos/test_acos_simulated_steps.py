"""Steps of Table 7 by the rules of the generator that ACOS names, beside sums on paper."""

import pytest

from lightrig.suites.claims.acos.simulated_steps import over_a_switch, step_time, with_tax


def test_a_step_on_packet_switches_is_its_pipeline():
    """Mixtral 8x7B, 4k: 16 micro-batches of 65,536 tokens through 4 stages of 8 layers.

    A layer has 24 T d^2 + 4 T S d + 2 T d FLOP and sends 7 / 8 of 1.25 x 2 T d values; backward it
    has twice and sends as much. A message of T d values between stages is sent while the next
    micro-batch is computed, but for the first one's way and the last one's way back.
    """
    tokens, d, length = 256 * 4096 / 16, 4096, 4096
    kernels = (24 * tokens * d * d + 4 * tokens * length * d + 2 * tokens * d) / 989e12
    exchange = 7 / 8 * 1.25 * 2 * tokens * d * 2 / 100e9
    message = tokens * d * 2 / 100e9
    layers = 8
    stage = layers * (3 * kernels + 2 * exchange)
    gradients = 2 * 15 / 16 * (12 * 32 * d * d / 4 * 2) / 100e9
    expected = (16 + 3) * stage + 6 * message + gradients
    assert step_time("Mixtral-8x7B", 4096, "packet") / 1e9 == pytest.approx(expected, rel=0.01)


def test_what_an_all_to_all_takes_more_is_what_a_step_does():
    """A micro-batch of Qwen-2 at 16k waits for 14 all-to-alls in each of 19 turns."""
    tokens, d = 64 * 16_384 / 16, 3584
    exchange = 15 / 16 * 1.25 * 8 * tokens * d * 2 / 100e9
    ideal, longer = (with_tax("Qwen2-57B", 16_384, tax).value for tax in (1.0, 1.6))
    step = step_time("Qwen2-57B", 16_384, "packet") / 1e9
    assert (longer - ideal) * step == pytest.approx(0.6 * 19 * 14 * exchange, rel=0.02)


def test_one_tax_gives_the_three_printed_ratios():
    """Table 9: 1.43, 1.34 and 1.29; the tax is chosen for the middle one."""
    printed = {4096: 1.43, 8192: 1.34, 16_384: 1.29}
    for length, ratio in printed.items():
        assert with_tax("Qwen2-57B", length, 1.6).value == pytest.approx(ratio, abs=0.016)


@pytest.mark.long
def test_longer_sequences_have_less_to_exchange():
    found = [over_a_switch("Qwen2-57B", length).value for length in (4096, 8192, 16_384)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 1.29
