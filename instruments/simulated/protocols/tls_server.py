"""A server's end of TLS for simulated devices, and the certificate that it shows.

The connection's bytes are counted in virtual time as its session sees them, before encryption, as
a client counts them: handshakes and tickets are nobody's reply.
"""

import datetime as dt
import ipaddress
import os
import ssl
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lightrig.instruments.clock import wall_time
from lightrig.instruments.simulated.protocols.device_server import (
    Session,
    SessionFactory,
    TcpDeviceConnection,
)
from lightrig.testbeds import LightrigError

_LASTS = dt.timedelta(days=3650)


class ServerCertificate:
    """A certificate of its own authority for 127.0.0.1 and localhost, and its key.

    Attributes:
        text: the certificate, as a client's file of trusted certificates has it.
    """

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        now = wall_time()
        names = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + _LASTS)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.text = made.public_bytes(serialization.Encoding.PEM).decode()

    def key(self) -> str:
        """Return the key, as a client's or server's file has it."""
        made = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return made.decode()

    def context(self, clients: Path | None) -> ssl.SSLContext:
        """Return a server's context for HTTP/2.

        `clients` is a file of certificates that sign those of clients. Raises `LightrigError`.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2"])
        descriptor, path = tempfile.mkstemp()  # readable by this user alone
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write((self.key() + self.text).encode())
            context.load_cert_chain(path)
        finally:
            Path(path).unlink()
        if clients is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(clients)
            except OSError as error:
                raise LightrigError(f"{clients}: no file of certificates: {error}") from error
        return context


class TlsServer:
    """Serves a factory's sessions over TLS; plaintext is refused.

    Args:
        factory: makes the session of a connection once TLS has begun.
        context: of the server.
    """

    def __init__(self, factory: SessionFactory, context: ssl.SSLContext) -> None:
        self._factory = factory
        self._context = context

    def __call__(self, connection: TcpDeviceConnection, index: int) -> "TlsConnection":
        """Return the session of a new connection."""
        return TlsConnection(connection, self._context, self._factory, index)


class TlsConnection:
    """Device end of one encrypted connection, and the connection of the session in it.

    Attributes:
        verified: whether the client has shown a certificate that is trusted.
    """

    def __init__(
        self,
        connection: TcpDeviceConnection,
        context: ssl.SSLContext,
        factory: SessionFactory,
        index: int,
    ) -> None:
        self.verified = False
        self._connection = connection
        self._flight = connection.counted_by_session()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._begin: Callable[[], Session] = partial(factory, self, index)
        self._session: Session | None = None
        self._refused = False
        self._hung_up = False
        self._lock = threading.Lock()  # sessions answer on the clock's thread

    def received(self, data: bytes) -> None:
        """Take encrypted bytes."""
        if self._refused:
            return
        with self._lock:
            self._incoming.write(data)
        try:
            if self._session is None:
                self._handshake()
                self.verified = bool(self._tls.getpeercert())
                self._session = self._begin()
            while plain := self._read():
                self._session.received(plain)
                self._flight.landed(len(plain))
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # no TLS, no trusted certificate, or the client has ended it
            if self._session is None:
                self._refuse()
            else:
                self.close()

    def closed(self) -> None:
        """End, since the client has left."""
        if self._session is not None:
            self._session.closed()
        if not self._hung_up:  # else the client has yet to see the end, and counts it then
            self._flight.close()

    def send(self, data: bytes) -> None:
        """Encrypt and write."""
        self._flight.sent(len(data))
        with self._lock:
            self._tls.write(data)
            self._connection.send(self._outgoing.read())

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up; the end itself counts as one byte in flight until the client has seen it."""
        self._flight.sent(1)
        self._hung_up = True
        self._connection.close(abruptly=abruptly)

    def _refuse(self) -> None:
        """End a connection on which TLS has not begun, and wait until the client leaves.

        By TLS 1.3 a client may write as soon as it has shown its certificate, before it hears that
        this one is refused (RFC 8446, section 4.4.4). What it has written stays in flight until it
        has seen the end: else time could move, and its call time out, before.
        """
        self._refused = True
        self._connection.end_output()

    def _handshake(self) -> None:
        with self._lock:
            try:
                self._tls.do_handshake()
            finally:
                if waiting := self._outgoing.read():
                    self._connection.send(waiting)

    def _read(self) -> bytes:
        with self._lock:
            return self._tls.read(1 << 16)
