"""The order in which what was saved is restored, by runs and by `lightrig restore`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lightrig.harness.bench.fabric import Fabric
from lightrig.harness.bench.restoring import Notify, Obstacles, ignore
from lightrig.harness.bench.server_settings import SavedServers
from lightrig.harness.bench.settings import SavedInstruments


@dataclass(frozen=True, slots=True)
class SavedBench:
    """What was saved of an open bench, by kind; of servers None where jobs restore those."""

    settings: SavedInstruments
    fabric: Fabric
    servers: SavedServers | None = None


class RestoreStep(NamedTuple):
    """A step of restoring: the kind of state that it needs saved, and what carries it out."""

    kind: Literal["settings", "fabric", "servers"]
    carry_out: Callable[[SavedBench], None]


def restore_steps(
    obstacles: Obstacles,
    *,
    moving: bool = True,
    several: bool = False,
    force: bool = False,
    keep_trying: int | None = None,
    notify: Notify = ignore,
) -> Iterator[RestoreStep]:
    """Yield the steps in their order; each is carried out on all benches before the next.

    Light that was found off is off before a circuit moves. Light is switched on or raised once
    all else is as it was found.

    moving: whether circuits may move. several: whether the lab's instruments are in more benches
    than one; within a bench, `SavedInstruments.restore` raises light last by itself. The rest as
    `InitialStates.restore` takes it.
    """
    trying: dict[str, Any] = {"keep_trying": keep_trying, "notify": notify}

    def restore_servers(saved: SavedBench) -> None:
        if saved.servers is not None:
            saved.servers.restore(**trying)

    if moving:
        yield RestoreStep("settings", lambda saved: saved.settings.restore_off(**trying))
    yield RestoreStep("fabric", lambda saved: saved.fabric.restore(force=force, **trying))
    if several:
        yield RestoreStep("settings", lambda saved: saved.settings.restore_without_light(**trying))
    yield RestoreStep(
        "settings", lambda saved: saved.settings.restore(obstacles=obstacles, **trying)
    )
    yield RestoreStep("servers", restore_servers)
