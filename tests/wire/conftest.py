"""Sessions with scripted servers, and the clocks they run on."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from scripted_tl1 import Script, ScriptedServer, scripted_tl1

from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.wire.tl1 import Tl1Session

PASSWORD = "hunter2-and-more"
Against = Callable[..., tuple[Tl1Session, ScriptedServer]]


@pytest.fixture(params=["virtual", "system"])
def clock(request: pytest.FixtureRequest) -> Clock:
    """Each kind of clock in turn: a wire behaves alike on both."""
    clock: Clock = request.getfixturevalue(f"{request.param}_clock")
    return clock


@pytest.fixture
def against(
    system_clock: SystemClock,
) -> Iterator[Against]:
    """Open a session with a scripted server, with a login on request."""
    with contextlib.ExitStack() as stack:

        def make(
            script: Script | None, *, login: bool = False
        ) -> tuple[Tl1Session, ScriptedServer]:
            server = stack.enter_context(scripted_tl1(script))
            session = Tl1Session(
                "ocs", *server.address, system_clock, ("bench", PASSWORD) if login else None
            )
            stack.callback(session.close)
            return session, server

        yield make
