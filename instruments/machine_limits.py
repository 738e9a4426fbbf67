"""What a machine refuses an account that has reached a limit of it, on whatever thread.

A thread that fails so answers nobody: whoever waits for it sees an instrument that is silent. It
reports here, and errors of instruments that do not answer name what it met.
"""

import sys
import threading

_met = dict[str, None]()
"""Sentences, in the order in which limits were met."""


def limit_of_machine(error: BaseException) -> str | None:
    """Return a sentence on a lack of processes, threads or memory; None for any other error."""
    if isinstance(error, BlockingIOError) and error.filename is None:  # of fork
        problem = "starts no more processes"
    elif isinstance(error, RuntimeError) and "start new thread" in str(error):
        problem = "starts no more threads"
    elif isinstance(error, MemoryError):
        problem = "has no more memory"
    else:
        return None
    return (
        f"the machine {problem} for this account or its group (`ulimit -a`, pids.max and "
        "memory.max of the cgroup); end others or raise the limit"
    )


def refused_by_machine(error: BaseException) -> str | None:
    """Return the sentence of `limit_of_machine` for a command or run that ends by the error."""
    if (limit := limit_of_machine(error)) is None:
        return None
    return f"{limit}. `lightrig doctor` names what was left changed"


def report_on_thread() -> None:
    """Report the error in hand as that of a thread that has ended by it, and keep a limit in mind.

    For threads that go on with the rest of their work.
    """
    kind, error, traceback = sys.exc_info()
    assert kind is not None
    assert error is not None
    keep_in_mind(error)
    threading.excepthook(
        threading.ExceptHookArgs((kind, error, traceback, threading.current_thread()))
    )


def keep_in_mind(error: BaseException) -> None:
    """Keep in mind which limit of the machine an error means, if any."""
    if (limit := limit_of_machine(error)) is not None:
        _met[limit] = None


def limits_met() -> list[str]:
    """Return the sentences of limits that threads of this process have met so far."""
    return list(_met)
