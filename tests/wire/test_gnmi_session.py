"""gNMI sessions against a server of grpcio: TLS, large messages, statuses, times, subscriptions.

The server is grpc's own library with the servicer of the published protocol file, so each
expectation is that of an implementation by others.
"""

from collections.abc import Iterator
from concurrent import futures
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from real_time import LONG, over_soon

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.simulated.protocols.tls_server import ServerCertificate
from lightrig.instruments.wire.gnmi import GnmiCredentials, GnmiSession, path_of

if TYPE_CHECKING:
    from grpcio_servicer import Servicer


if None in map(find_spec, ("grpc", "pygnmi", "h2")):
    pytest.skip("the extra gnmi is not installed", allow_module_level=True)

MS = 1_000_000
LOGIN = ("bench", "hunter2-and-more")
WINDOW = 65_535
"""Bytes that HTTP/2 allows at first (RFC 9113, section 6.9.2)."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[ServerCertificate, Path]:
    made = ServerCertificate("grpcio")
    file = tmp_path_factory.mktemp("trusted") / "trusted.pem"
    file.write_text(made.text)
    return made, file


@pytest.fixture
def server(certificate: tuple[ServerCertificate, Path]) -> "Iterator[tuple[Servicer, Any, int]]":
    import grpc
    from grpcio_servicer import Servicer
    from pygnmi.spec.v080 import gnmi_pb2_grpc

    servicer, pool = Servicer(), futures.ThreadPoolExecutor(4)
    made = grpc.server(pool, options=[("grpc.max_receive_message_length", -1)])
    gnmi_pb2_grpc.add_gNMIServicer_to_server(servicer, made)
    keys = [(certificate[0].key().encode(), certificate[0].text.encode())]
    port = made.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(keys))
    made.start()
    yield servicer, made, port
    servicer.over.set()
    made.stop(None).wait()
    pool.shutdown()


@pytest.fixture
def session(
    server: "tuple[Servicer, Any, int]", certificate: tuple[ServerCertificate, Path]
) -> Iterator[GnmiSession]:
    clock = SystemClock()
    credentials = GnmiCredentials(LOGIN, certificate[1])
    made = GnmiSession("ocs", "127.0.0.1", server[2], clock, credentials)
    yield made
    made.close()
    clock.close()


def get(name: str) -> Any:
    from pygnmi.spec.v080 import gnmi_pb2

    return gnmi_pb2.GetRequest(path=[path_of(gnmi_pb2, (name,))], encoding=gnmi_pb2.JSON_IETF)


def subscribe(*names: str) -> Any:
    from pygnmi.spec.v080 import gnmi_pb2

    wanted = [gnmi_pb2.Subscription(path=path_of(gnmi_pb2, (name,))) for name in names]
    return gnmi_pb2.SubscribeRequest(subscribe=gnmi_pb2.SubscriptionList(subscription=wanted))


def test_a_large_reply_comes_whole(
    session: GnmiSession, server: "tuple[Servicer, Any, int]"
) -> None:
    from grpcio_servicer import LARGE

    reply = session.call("Get", get("a"), LONG)
    assert len(reply.message.notification[0].update[0].val.json_ietf_val) == LARGE + 2
    assert reply.not_before <= reply.received
    assert {k: server[0].metadata[k] for k in ("username", "password")} == {
        "username": LOGIN[0],
        "password": LOGIN[1],
    }


def test_a_large_request_is_taken_whole(
    session: GnmiSession, server: "tuple[Servicer, Any, int]"
) -> None:
    from pygnmi.spec.v080 import gnmi_pb2

    request = gnmi_pb2.SetRequest()
    for number in range(3000):
        request.update.add(
            path=path_of(gnmi_pb2, ("CONFIG_DB", "localhost", "T", f"{number:05}A-{number:05}B")),
            val=gnmi_pb2.TypedValue(json_ietf_val=b'{"a_side": "1A", "b_side": "2B"}'),
        )
    assert request.ByteSize() > 4 * WINDOW
    reply = session.call("Set", request, LONG)
    assert len(reply.message.response) == 3000
    assert server[0].seen == [request]


def test_a_status_is_a_denial_with_its_text_and_no_secret(session: GnmiSession) -> None:
    with pytest.raises(DeniedError) as denied:
        session.call("Get", get("denied"), LONG)
    assert (denied.value.code, denied.value.text) == ("PERMISSION_DENIED", "42 % verboten für ***")
    with pytest.raises(DeniedError, match="UNKNOWN Exception calling application"):
        session.call("Get", get("fails"), LONG)
    assert session.call("Get", get("a"), LONG).message.notification


def test_a_late_reply_is_an_error_in_time_and_is_never_anothers(
    session: GnmiSession, server: "tuple[Servicer, Any, int]"
) -> None:
    """The connection on which a reply may still come is given up; those before share one."""
    session.call("Get", get("a"), LONG)
    with over_soon(after=300 * MS), pytest.raises(NoReplyError, match=r"within 0\.3 s"):
        session.call("Get", get("late"), 300 * MS)
    assert session.call("Get", get("a"), LONG).message.notification[0].update
    first, late, after = server[0].peers
    assert first == late != after


def test_the_arrival_of_an_encrypted_reply_is_known_from_both_sides(session: GnmiSession) -> None:
    """The kernel stamps the encrypted bytes: the reply had not come before the server slept."""
    from grpcio_servicer import SLOW

    session.call("Get", get("a"), LONG)
    pending = session.submit("Get", get("slow"))
    reply = pending.result(LONG)
    assert reply.not_before >= pending.sent.earliest + SLOW
    assert reply.not_before <= reply.received


def test_calls_in_flight_have_their_own_replies(session: GnmiSession) -> None:
    pending = [session.submit("Get", get(name)) for name in ("a", "b", "c")]
    names = [
        each.result(LONG).message.notification[0].update[0].path.elem[0].name
        for each in reversed(pending)
    ]
    assert names == ["c", "b", "a"]


def test_a_subscription_gives_what_comes_until_it_is_closed(
    session: GnmiSession, server: "tuple[Servicer, Any, int]"
) -> None:
    from pygnmi.spec.v080 import gnmi_pb2

    stream = session.subscribe(subscribe("a"))
    assert stream.next(LONG).message.update.timestamp == 7
    assert stream.next(LONG).message.sync_response
    with over_soon(after=200 * MS), pytest.raises(NoReplyError, match="nothing more"):
        stream.next(200 * MS)
    # Of bytes without a stamp of the kernel the bound may be that of a read long before.
    more = gnmi_pb2.SubscribeResponse(update=gnmi_pb2.Notification(timestamp=8))
    session.message(int(stream.tag), more.SerializeToString(), not_before=17)
    reply = stream.next(LONG)
    assert reply.message.update.timestamp == 8
    assert reply.not_before == stream.since < reply.received
    session.message(int(stream.tag), more.SerializeToString(), not_before=reply.received)
    assert stream.next(LONG).not_before == reply.received
    stream.close()
    assert server[0].over.wait(LONG / 1e9)  # the server has seen the end


def test_an_ended_subscription_says_why(session: GnmiSession) -> None:
    stream = session.subscribe(subscribe("a", "b"))
    for _ in range(3):
        stream.next(LONG)
    for _ in range(2):
        with pytest.raises(DeniedError, match="RESOURCE_EXHAUSTED too many"):
            stream.next(LONG)


def test_a_server_that_stops_is_noticed_at_once(
    session: GnmiSession, server: "tuple[Servicer, Any, int]"
) -> None:
    pending = session.submit("Get", get("late"))
    while not server[0].seen:
        pass
    with over_soon():
        server[1].stop(0)
        with pytest.raises((DisconnectedError, DeniedError)):
            pending.result(LONG)
    with over_soon(), pytest.raises(UnreachableError):
        session.call("Get", get("a"), LONG)


def test_a_certificate_of_another_host_is_refused(
    certificate: tuple[ServerCertificate, Path],
) -> None:
    """The certificate names 127.0.0.1 and localhost; the server is at another address."""
    import grpc

    made = grpc.server(futures.ThreadPoolExecutor(1))
    keys = [(certificate[0].key().encode(), certificate[0].text.encode())]
    port = made.add_secure_port("127.0.0.2:0", grpc.ssl_server_credentials(keys))
    made.start()
    clock = SystemClock()
    session = GnmiSession("ocs", "127.0.0.2", port, clock, GnmiCredentials(LOGIN, certificate[1]))
    with pytest.raises(UnreachableError, match=r"not trusted: IP address mismatch.*127\.0\.0\.2"):
        session.call("Get", get("a"), LONG)
    session.close()
    clock.close()
    made.stop(None).wait()


def test_a_server_without_tls_is_refused() -> None:
    import grpc

    made = grpc.server(futures.ThreadPoolExecutor(1))
    port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    clock = SystemClock()
    session = GnmiSession("ocs", "127.0.0.1", port, clock, GnmiCredentials(LOGIN))
    with pytest.raises(UnreachableError, match="began no TLS"):
        session.call("Get", get("a"), LONG)
    session.close()
    clock.close()
    made.stop(None).wait()


@pytest.mark.parametrize("reply", [b"\xff\xff", b"\x0a\x7fshort"])
def test_bytes_that_are_no_message_are_garbled(
    certificate: tuple[ServerCertificate, Path], reply: bytes
) -> None:
    import grpc

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: reply)

    made = grpc.server(futures.ThreadPoolExecutor(1))
    made.add_generic_rpc_handlers((Handler(),))
    keys = [(certificate[0].key().encode(), certificate[0].text.encode())]
    port = made.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(keys))
    made.start()
    clock = SystemClock()
    session = GnmiSession("ocs", "127.0.0.1", port, clock, GnmiCredentials(None, certificate[1]))
    with pytest.raises(GarbledError, match="it is no GetResponse"):
        session.call("Get", get("a"), LONG)
    session.close()
    clock.close()
    made.stop(None).wait()
