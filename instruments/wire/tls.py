"""TLS over an open TCP connection, for a thread that reads and another one that writes."""

import socket
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path

from lightrig.instruments.clock import boot_time
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.wire.tcp import EncryptedSocket

_CHUNK = 1 << 16


class TlsSocket(EncryptedSocket):
    """The part of a socket that sessions use, encrypted.

    An `ssl.SSLSocket` must not be read and written at the same time; here only the state of the
    TLS connection is locked, and reading waits outside of the lock.
    """

    def __init__(
        self, connection: socket.socket, host: str, context: ssl.SSLContext, timeout: float
    ) -> None:
        super().__init__(fileno=connection.detach())
        self.read_encrypted = super().recv
        self.settimeout(timeout)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._state = threading.Lock()
        try:
            self._handshake(timeout)
        except BaseException:
            self.close()
            raise

    def sendall(self, data: bytes, flags: int = 0, /) -> None:  # type: ignore[override]
        """Encrypt and write `data`; raises OSError."""
        with self._state:
            self._tls.write(data)
            super().sendall(self._outgoing.read())

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return decrypted bytes, none at the end of the connection; raises OSError."""
        while True:
            with self._state:
                try:
                    return self._tls.read(size)
                except ssl.SSLWantReadError:
                    pass
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return b""
            data = self.read_encrypted(_CHUNK)
            with self._state:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()

    def drained(self) -> bool:
        """Whether everything that was read has been handed out."""
        with self._state:
            return not self._incoming.pending and not self._tls.pending()

    def _handshake(self, timeout: float) -> None:
        """Shake hands within `timeout` s in all, however many parts the server sends."""
        ends = boot_time() + round(timeout * 1e9)
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                if waiting := self._outgoing.read():
                    super().sendall(waiting)
                if (left := ends - boot_time()) <= 0:
                    raise TimeoutError("timed out") from None
                self.settimeout(left / 1e9)
                data = super().recv(_CHUNK)
                if not data:
                    raise ConnectionResetError("the peer closed the connection") from None
                self._incoming.write(data)
            finally:
                if waiting := self._outgoing.read():
                    super().sendall(waiting)


def encrypt(
    instrument: str,
    connection: socket.socket,
    host: str,
    trusted: Path | None,
    timeout: float,
    *,
    protocols: Sequence[str] = (),
    certificate: Path | None = None,
) -> TlsSocket:
    """Start TLS on `connection`, within `timeout` s, and verify that its certificate is `host`'s.

    `trusted` is a file of certificates; None for those that the system trusts. `protocols` are
    offered by ALPN; `certificate` is a file with the client's own and its key. Raises
    `UnreachableError`.
    """
    try:
        context = ssl.create_default_context(cafile=str(trusted) if trusted else None)
        if protocols:
            context.set_alpn_protocols(protocols)
        if certificate is not None:
            context.load_cert_chain(certificate)
        encrypted = TlsSocket(connection, host, context, timeout)
        encrypted.settimeout(None)
        return encrypted
    except ssl.SSLCertVerificationError as error:
        problem = f"showed a certificate that is not trusted: {error.verify_message}"
        advice = "`options: {certificates: FILE}` with its certificate, or its authority's"
        cause: OSError = error
    except OSError as error:
        problem = f"began no TLS: {error}"
        advice = "does it speak without TLS there, is the file of certificates right?"
        cause = error
    connection.close()
    raise UnreachableError(instrument, problem, details=[("try", advice)]) from cause
