"""Opening a testbed for a run that may wait for it."""

from functools import partial
from typing import TYPE_CHECKING

import pytest

from lightrig.harness.plugin.keys import RUN
from lightrig.harness.plugin.traces import TRAFFIC
from lightrig.testbeds.escaping import escape_control

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench
    from lightrig.harness.modes import Mode
    from lightrig.testbeds import Testbed


def take_bench(config: pytest.Config, testbed: "Testbed", mode: "Mode", purpose: str) -> "Bench":
    """Return the open testbed; with `--queue` once its instruments are free.

    Raises what `bind` raises.
    """
    # As the fixtures do: what opens a bench takes long to load.
    from lightrig.harness.bench import bind  # noqa: PLC0415

    seed, hold = config.getoption("seed"), config.getoption("hold")
    traffic = config.stash[TRAFFIC].of(testbed)
    on_clock = None if traffic is None else traffic.watch
    attempt = partial(bind, testbed, mode, seed, purpose, hold, on_clock=on_clock)
    wait = config.getoption("queue")
    if not wait or mode == "simulated":
        return attempt()
    from lightrig.harness.bench.lease_queue import in_turn  # noqa: PLC0415 - few runs wait

    return in_turn(testbed, wait, attempt, lambda sentence: _show(config, testbed.name, sentence))


def _show(config: pytest.Config, testbed: str, sentence: str) -> None:
    """Tell the observers, and a person at once: what a test prints is shown after it has ended."""
    config.stash[RUN].note(testbed, sentence)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if terminal is not None and capture is not None:
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.write_line(escape_control(f"{testbed} {sentence}"))
            terminal.flush()
