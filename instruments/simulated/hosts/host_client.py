"""Program in the place of a simulated server's tools: asks the world for the tool's output.

`host_shell` puts it into a server's namespace. It is run as a file of its own, with the name of the
tool and its arguments, and imports nothing of ours.
"""

import json
import socket
import sys

SOCKET = "/run/lightrig/world"


def main() -> int:
    """Print what the tool prints; return its exit status."""
    with socket.socket(socket.AF_UNIX) as world:
        world.connect(SOCKET)
        world.sendall(json.dumps(sys.argv[1:]).encode() + b"\n")
        with world.makefile("rb") as replies:
            reply = json.loads(replies.readline())
    sys.stdout.write(reply["stdout"])
    sys.stdout.flush()
    sys.stderr.write(reply["stderr"])
    return int(reply["status"])


if __name__ == "__main__":
    sys.exit(main())
