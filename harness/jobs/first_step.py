"""Scripts that ended before their first step: found after a run, with what each rank did."""

from collections import defaultdict
from collections.abc import Iterator

from lightrig.instruments.jobs.traffic.rank_session import ScriptRun
from lightrig.testbeds import LightrigError


class NoStepError(LightrigError):
    """A training script has ended before its first step."""


def check_first_step(run: ScriptRun, name: str, part: str) -> None:
    """Raise `NoStepError` for a run in which no rank trained, with what each of them did.

    No rank has ended a step of an optimizer of PyTorch then, and either one has made such an
    optimizer, or none has begun an operation between servers. A script that has optimizers of its
    own alone is taken for one that trains.

    part: of the command in which the script ran, such as "on the ring of all ranks".
    """
    if any(run.steps.values()):
        return
    if any(run.operations.values()) and not any(run.optimizers.values()):
        return
    raise no_step(run, name, part)


def no_step(run: ScriptRun, name: str, part: str) -> NoStepError:
    """Return the error for a run without a step, with what each rank did instead."""
    lines = [f"{name} ended {part} before its first step"]
    alike: defaultdict[str, list[int]] = defaultdict(list)
    for rank in sorted(run.operations):
        alike["; ".join(_did(run, rank))].append(rank)
    for did, ranks in alike.items():
        label = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
        lines.append(f"  {label:<9} {did}")
    lines.append(
        "  try       torchrun with the same arguments: no batch of data, or no step to do?"
    )
    return NoStepError("\n".join(lines))


def _did(run: ScriptRun, rank: int) -> Iterator[str]:
    count = run.optimizers.get(rank, 0)
    yield f"{count or 'no'} optimizer{'' if count == 1 else 's'} of PyTorch, no step of one"
    operations = [*run.operations[rank], *run.front_end.get(rank, ())]
    if operations:
        last = max(operations, key=lambda done: done.ended.latest)
        line = "" if last.line is None else f" in line {last.line}"
        kind = f"{last.operation.kind} of {last.operation.group}{line}"
        yield f"{len(operations)} operations with other ranks, the last {kind}"
    else:
        yield "no operation with other ranks"
    printed = run.printed.get(rank, ())
    yield f"printed last {printed[-1][1]!r}" if printed else "printed nothing"
