"""What a machine refuses an account that has reached a limit of it."""


def refused_by_machine(error: Exception) -> str | None:
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
        "memory.max of the cgroup); end others or raise the limit. `lightrig doctor` names what "
        "was left changed"
    )
