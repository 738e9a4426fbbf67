"""The state of a fabric as a page that loads itself again: a file, no server."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightrig.harness.orchestration.jobs import UnknownJobError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_page
from lightrig.instruments.clock import wall_time

REFRESH_S = 5
LOOK_AGAIN_S = 1.0
_MOST_LINKS = 2000
"""Links that a page lists; a hall has half a million."""


def status_page(running: Orchestrator, fabric: str, *, ended: bool = False) -> str:
    """Return the page: jobs and why they wait, nodes, silent switches, links."""
    status = running.status()
    return render_page(
        "orchestrate_page",
        title=f"{fabric}: fabric",
        style=style(0) + page_style(),
        fabric=fabric,
        status=status,
        nodes=_nodes(running, status),
        switches=running.switches,
        links=_links(running, status),
        most_links=_MOST_LINKS,
        refresh_s=REFRESH_S,
        written=wall_time().isoformat(sep=" ", timespec="seconds"),
        ended=ended,
    )


class PageWriter:
    """Keeps a file the page of an orchestrator, until `close`; raises `OSError` at first.

    It is written anew where the status has changed, whole or not at all.
    """

    def __init__(self, running: Orchestrator, fabric: str, path: Path) -> None:
        self._running, self._fabric, self._path = running, fabric, path
        self._over = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="page")
        self._thread.start()

    def close(self) -> None:
        """Write the page a last time, with the end of the service."""
        self._over.set()
        self._thread.join()
        self._write(ended=True)

    def _follow(self) -> None:
        shown = self._running.status()
        while not self._over.wait(LOOK_AGAIN_S):
            if (status := self._running.status()) is not shown:
                try:
                    self._write()
                except OSError:
                    continue  # such as a full disk: the next look tries again
                shown = status

    def _write(self, *, ended: bool = False) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        draft.write_text(status_page(self._running, self._fabric, ended=ended), encoding="utf-8")
        draft.replace(self._path)


def _nodes(running: Orchestrator, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    place = {
        node: (name, number, rank)
        for name, job in status["jobs"].items()
        for number, group in enumerate(job["groups"])
        if group
        for rank, node in enumerate(group["nodes"])
    }
    found = []
    for node in running.layout.nodes:
        job, group, rank = place.get(node, ("", "", ""))
        why = status["faulty"].get(node, "")
        state = "in a job" if job else "free"
        if node in status["drained"]:
            state = "drained"
        if why:
            state = "failed"
        crossed = [
            f"{port} {what}"
            for port, what in status["crossed"].items()
            if port.partition(".")[0] == node
        ]
        why = why or "; ".join(crossed) or status["dark_ports"].get(node, "")
        found.append(
            {"name": node, "state": state, "job": job, "group": group, "rank": rank, "why": why}
        )
    return found


def _links(running: Orchestrator, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for name, job in status["jobs"].items():
        if job["reserved"]:
            continue
        try:
            rings = running.links(name)
        except UnknownJobError:  # withdrawn meanwhile
            continue
        for ring in rings:
            for rank in ring["ranks"]:
                for link in rank["links"]:
                    port = f"{rank['node']}.{link['port']}"
                    if port < link["to"]:  # each is listed at both ends
                        found.append(
                            {"job": name, "group": ring["group"], "port": port, "to": link["to"]}
                        )
    return found
