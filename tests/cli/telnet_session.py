"""TL1 as a person types it, over Telnet."""

import socket


class TelnetSession:
    """A session of TL1 with a switch, logged in."""

    def __init__(self, address: tuple[str, int], login: tuple[str, str]) -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self.command(f"ACT-USER::{login[0]}:1::{login[1]};")

    def command(self, text: str) -> str:
        self._socket.sendall(text.encode())
        tag = text.split(":")[3].strip(";")
        received = b""
        while f"M  {tag} ".encode() not in received or not received.endswith(b"\r\n;"):
            data = self._socket.recv(4096)
            assert data, received
            received += data
        assert b"COMPLD" in received, received
        return received.decode()

    def close(self) -> None:
        self._socket.close()
