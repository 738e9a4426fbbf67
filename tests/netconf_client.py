"""ncclient's sessions, opened as its README opens one."""

import contextlib
from collections.abc import Iterator

from ncclient import manager
from ncclient.transport import session as ncclient_session


@contextlib.contextmanager
def netconf_session(address: tuple[str, int], login: tuple[str, str]) -> Iterator[manager.Manager]:
    """Open a session with user and password, with any host key.

    ncclient looks ten times a second whether there is something to send; here, more often.
    """
    ncclient_session.TICK = 0.002
    (host, port), (user, password) = address, login
    with manager.connect(
        host=host,
        port=port,
        username=user,
        password=password,
        hostkey_verify=False,
        look_for_keys=False,
        allow_agent=False,
    ) as session:
        yield session
