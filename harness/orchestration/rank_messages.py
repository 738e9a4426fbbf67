"""Messages of a job's ranks to a service whose system has a controller for each job."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from pydantic import BaseModel

from lightrig.harness.orchestration.jobs import OrchestrationError


class ForeignError(OrchestrationError):
    """A message about circuits, ranks or nodes that are not its job's."""


class RankMessages(Protocol):
    """What takes messages of ranks, and answers them once what they ask for is there.

    A message may come again, as after a kill of the service: it is then answered as the first was.
    """

    @property
    def messages(self) -> tuple[type[BaseModel], ...]:
        """The models of what ranks send, told apart by their field `do`."""

    @property
    def answer(self) -> type[BaseModel]:
        """The model of answers."""

    def start(self) -> None:
        """Begin to act on messages, and go on with what was under way before a kill."""

    def receive(self, job: str, message: BaseModel) -> Future[Mapping[str, Any]]:
        """Take a message; its answer comes later.

        Raises `UnknownJobError`, `ForeignError`, `JobConflictError` and `OrchestrationError`.
        """

    def waiting(self, message: BaseModel) -> Mapping[str, Any]:
        """Return the answer to a message whose own answer has not come in time."""

    def check(self, request: object) -> None:
        """Raise `JobConflictError` for a request that wants circuits which ranks ask for."""

    def forget(self, job: str) -> None:
        """Note that a job has ended, which another of its name may follow."""

    def close(self) -> None:
        """End; circuits stay as they are."""
