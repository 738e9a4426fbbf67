"""Command lines that end a program, and all that it has started, with its time and its caller.

The end of an SSH connection ends no program: one that neither reads nor writes goes on for ever.
Everything that is started on a server is run by `supervised`. Where no end of the connection
arrives, as through a cable that was pulled, `guard` ends the connection there.
"""

import math
import re
import shlex
from collections.abc import Sequence

_LATER_SECONDS = 1
"""Time from the caller's limit, after which it ends the program, to the server's own, in s."""

SILENCE_SECONDS = 25
"""How long a caller behind SSH may be silent until the connection to it is ended, in s."""

BEAT_SECONDS = 8.0
"""How often it writes a line to the guard, in s: it may be late twice."""

# The caller holds the input open; its end is that of the connection, of the channel, or of the
# caller.
#
# Ended is the process group that `timeout` makes, and each process that has the program's token in
# its environment: a daemon leaves group and session. SIGTERM comes first, SIGKILL a second later. A
# program that reads its input ends by that, and has two seconds before, by the clock: one round of
# the search takes seconds on a slow server. Most need some milliseconds. What a program has left
# behind when it ends by itself is looked for in the background, since nobody waits for that, and a
# moment later, since the process that forks a daemon may be missed along with it. Where the kernel
# has started no process but these (the last field of loadavg, proc(5)) there is none: the search
# takes more of a processor than all else.
#
# Where the program reads no more, `cat` fails by that: the program's own end tells its status, and
# the caller's end is waited for as without input.
#
# dash waits for all of a pipeline that it has started: what carries the input is started by one
# that ends at once.
#
# A process that has ended stays in its group until its parent reads its status, for ever where the
# first process of a container reads none: it is told by its state (proc_pid_stat(5)).
#
# The shell's own messages, such as that a job was terminated, are not the program's.
#
# A number whose process has ended may be another's: what signals this shell, or the program's
# group, later compares the time of the start (field 22 of proc_pid_stat(5)). A group's number is no
# other's while a process is in it.
#
# One line without what csh and fish change, see `login_line`.
_SCRIPT = """
exec 3<&0 4>&2 2>/dev/null
token=$$
read -r token </proc/sys/kernel/random/uuid
began() {
at=
read -r _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ at _ <"/proc/$1/stat"
}
began $$
mine=$at
tell() {
began $$
[ "$at" = "$mine" ] && kill -s USR1 $$
}
lives() {
(cd /proc; LC_ALL=C grep -Eqs "[)] [A-Wa-w] [0-9]+ $program " [0-9]*/stat)
}
left() {
pids=
for each in $(cd /proc; LC_ALL=C grep -Fls "LIGHTRIG_PROGRAM=$token" [0-9]*/environ)
do pids="$pids ${each%/*}"
done
began "$program"
group=-$program
case $at in ""|"$its") ;;
*) group=;;
esac
[ "$pids" ] || { [ "$group" ] && kill -s 0 -- "$group" && lives; }
}
tenths() {
read -r now _ </proc/uptime && now=${now%%.*}${now##*.} && now=${now%?}
}
end() {
tenths && until=$((now - n))
nap=0.01
while left && [ $n -lt 30 ]
do case $n in 0) s=TERM nap=0.1;; -*|?) s=0;; *) s=KILL;; esac
kill -s $s -- $group $pids
sleep $nap
case $nap in 0.01) nap=0.03;; *) nap=0.1;; esac
n=$((n + 1))
[ $n -lt 0 ] && tenths && n=$((now - until)) && [ $n -gt 0 ] && n=0
done
}
n=$1 limit=$2
shift 2
trap "trap : USR1 TERM HUP INT; end; sleep 0.03; end; exit 143" USR1 TERM HUP INT
if [ $n = 0 ]
then LIGHTRIG_PROGRAM=$token timeout -k 1 "$limit" "$@" </dev/null 2>&4 3<&- 4>&- & program=$!
{ while read -r line
do :
done
tell
} <&3 >/dev/null 3<&- 4>&- & input=$!
else { { cat || while read -r line
do :
done
tell
} <&3 3<&- 4>&- &
} | LIGHTRIG_PROGRAM=$token timeout -k 1 "$limit" "$@" 2>&4 3<&- 4>&- & program=$!
fi
began "$program"
its=$at
exec 3<&- 4>&-
wait "$program"
status=$?
trap : USR1 TERM HUP INT
[ "$input" ] && kill "$input"
n=0
read -r _ _ _ _ last </proc/loadavg
case $((last - program)) in
[0-2]) ;;
*) { sleep 1
end
} </dev/null >/dev/null & ;;
esac
exit "$status"
"""


def _one_line(script: str) -> str:
    """Return a shell script as one line."""
    joined = "; ".join(script.strip().splitlines()).replace("$!;", "$! ;")
    return re.sub(r"(\b(?:do|then|else|in)|[{&]|;;);", r"\1", joined)


_PREFIX = ("sh", "-c", _one_line(_SCRIPT), "sh")
_LINE = shlex.join(_PREFIX).encode() + b" "
_NO_TIME, _GRACE = "0", "-20"
"""For how many tenths of a second, below zero, a program may end by itself."""


def supervised(
    command: Sequence[str], limit_ns: int | None = None, *, reads: bool = False
) -> list[str]:
    """Return the command that runs `command` for about `limit_ns`, and not longer than its caller.

    Its status is the program's, 124 after the limit, and 128 and the signal's number where one
    ended it. It needs `sh`, `grep`, and `timeout`, `sleep` and `cat` (coreutils).

    limit_ns: None for no limit.
    reads: whether the program reads its input; else that is empty.
    """
    seconds = 0 if limit_ns is None else math.ceil(limit_ns / 1e9) + _LATER_SECONDS
    return [*_PREFIX, _GRACE if reads else _NO_TIME, str(seconds), *command]


# The parent of the session's leader is the process of sshd that has this connection, and the
# account's own; what it has started ends by the end of its input. Another server of SSH is left
# alone, and so is whatever has adopted the session since its sshd has ended.
_GUARD = """
read -r _ _ _ _ _ leader _ </proc/self/stat
read -r _ _ _ sshd _ <"/proc/$leader/stat"
read -r name <"/proc/$sshd/comm"
case $name in sshd*) ;;
*) exit;;
esac
status=0
while [ $status = 0 ]
do timeout "$1" sh -c "read -r _"
status=$?
done
read -r _ _ _ parent _ <"/proc/$leader/stat"
[ $status = 124 ] && [ "$parent" = "$sshd" ] && kill "$sshd"
"""


_GUARD_NAME = "lightrig-guard"


def guard(silence_s: float = SILENCE_SECONDS) -> list[str]:
    """Return the command that ends its connection once its caller has been silent for so long.

    It ends, and ends nothing else, by the end of its input.
    """
    return ["sh", "-c", _one_line(_GUARD), _GUARD_NAME, f"{silence_s:g}"]


def is_guard(line: str) -> bool:
    """Whether the line of a login shell is that of `guard`."""
    return f" {_GUARD_NAME} " in line


def needs_guard(command: Sequence[str]) -> bool:
    """Whether a command is supervised and has no limit, or a longer one than the guard's."""
    arguments = list(command)
    if _PREFIX[-2] not in arguments:
        return False
    limit = int(arguments[arguments.index(_PREFIX[-2]) + 3])
    return limit == 0 or limit > SILENCE_SECONDS


_CHANGED = re.compile(r"[\n\\]|!(?![ =(])")
"""What csh or fish change within single quotes."""
_DECODED = ("sh", "-c", 'eval "$(printf %b "$0")"')
_DECODED_LINE = shlex.join(_DECODED).encode() + b" "
_ESCAPED = re.compile(r"[^\w /.,:=@%+-]", re.ASCII)


def login_line(command: Sequence[str]) -> str:
    """Return the line by which any login shell runs `command`: POSIX's, csh, or fish."""
    line = shlex.join(command)
    if not _CHANGED.search(line):
        return line
    octal = _ESCAPED.sub(
        lambda found: "".join(f"\\0{byte:03o}" for byte in found[0].encode()), line
    )
    return shlex.join([*_DECODED, octal])


def plain_line(line: bytes) -> bytes:
    """Return the line of the program that `supervised` or `login_line` was given."""
    if line.startswith(_DECODED_LINE):
        (octal,) = shlex.split(line[len(_DECODED_LINE) :].decode())
        text = re.sub(r"\\0([0-7]{3})", lambda found: chr(int(found[1], 8)), octal)
        line = text.encode("latin-1")
    if line.startswith(_LINE):
        line = line[len(_LINE) :].split(b" ", 2)[2]
    return line
