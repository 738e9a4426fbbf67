"""Command lines that end a program with its caller, wherever that caller has gone.

The end of an SSH connection ends no program: one that neither reads nor writes goes on for ever.
"""

import math
import shlex
from collections.abc import Sequence

_LATER_SECONDS = 1
"""Time from the caller's limit, after which it ends the program, to the server's own, in s."""

# The caller writes nothing and holds the input open; its end is that of the connection, of the
# channel, or of the caller. Where no end arrives, as through a cable that was pulled, `timeout`
# ends the program. Both signal the process group that `timeout` makes, so what the program has
# forked ends as well. `timeout` alone is not told: in the moment after its fork it would end by
# SIGTERM without its child. Once the input has ended, the end of the program does not stop the
# second signal, for those that ignore the first.
_SCRIPT = (
    'exec 3<&0; timeout -k 1 "$@" 3<&- </dev/null & program=$!; '
    "{ while read -r line; do :; done; trap '' TERM; "
    'kill -s TERM -- "-$program" "$program"; sleep 1; kill -s KILL -- "-$program"; '
    "} <&3 3<&- >/dev/null 2>&1 & input=$!; "
    'exec 3<&-; wait "$program"; status=$?; kill "$input" 2>/dev/null; exit "$status"'
)

_PREFIX = ("sh", "-c", _SCRIPT, "sh")
_LINE = shlex.join(_PREFIX).encode() + b" "


def limited(command: Sequence[str], limit_ns: int) -> list[str]:
    """Return the command that runs `command` for about `limit_ns`, and not longer than its caller.

    It reads nothing. Its status is the program's, 124 after the limit, and 128 and the signal's
    number where one ended it. It needs `sh` and `timeout` (coreutils).
    """
    return [*_PREFIX, str(math.ceil(limit_ns / 1e9) + _LATER_SECONDS), *command]


def without_limit(line: bytes) -> bytes:
    """Return the line that `limited` was made of; any other line as it is."""
    return line[len(_LINE) :].partition(b" ")[2] if line.startswith(_LINE) else line
