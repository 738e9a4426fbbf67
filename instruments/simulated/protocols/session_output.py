"""Output of an instrument's session behind a protocol whose client can clear the instrument."""

from contextlib import AbstractContextManager
from typing import Any

from lightrig.instruments.simulated.protocols.device_server import DeviceConnection


class SessionOutput:
    """Connection of one SCPI session, until a device clear ends the session.

    In real time answers come on the clock's own thread: one may be on its way while the client
    clears. It belongs to the ended session, and must not be taken for an answer of the next one.

    Args:
        client: to which answers go.
        lock: held while an answer is written; the client holds it while it clears.
    """

    def __init__(self, client: DeviceConnection, lock: AbstractContextManager[Any]) -> None:
        self._client: DeviceConnection | None = client
        self._lock = lock

    def mute(self) -> None:
        """Discard answers from now on; called with the lock."""
        self._client = None

    def send(self, data: bytes) -> None:
        """Write an answer."""
        with self._lock:
            if self._client is not None:
                self._client.send(data)

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up."""
        if (client := self._client) is not None:
            client.close(abruptly=abruptly)
