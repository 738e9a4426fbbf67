"""The store by which ranks find each other: kept by the harness, over the control connection."""

from __future__ import annotations

import base64
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Exchanges", "harness_store"]

_STORE_TIMEOUT = 300.0
"""Default timeout of a store's operations, in s, as PyTorch's."""


class Exchanges:
    """Operations on the harness's store, each of which waits for its result; without PyTorch."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}

    def ask(self, do: str, *given: Any, timeout: float | None = None) -> Any:
        """Do an operation and return its result; raises `TimeoutError` after `timeout` s."""
        with self._lock:
            number = self._count
            self._count += 1
            answered = self._waiting[number] = queue.SimpleQueue()
        self._emit({"store": number, "do": [do, *given]})
        try:
            return answered.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"{do} of {given[:1]} was not answered in {timeout:g} s") from None
        finally:
            del self._waiting[number]

    def stored(self, number: int, result: Any) -> None:
        """Take the result of an operation."""
        if number in self._waiting:
            self._waiting[number].put(result)


def harness_store(torch: Any, exchanges: Exchanges) -> Any:
    """Return a store of PyTorch's whose keys and values are the harness's."""

    def packed(value: Any) -> str:
        return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()

    class HarnessStore(torch.distributed.Store):  # type: ignore[misc, name-defined, unused-ignore]
        """A store over the control connection."""

        def __init__(self) -> None:
            super().__init__()
            self._timeout = _STORE_TIMEOUT

        def set(self, key: str, value: Any) -> None:
            exchanges.ask("set", key, packed(value))

        def get(self, key: str) -> bytes:
            return base64.b64decode(exchanges.ask("get", key, timeout=self._timeout))

        def add(self, key: str, amount: int) -> int:
            return int(exchanges.ask("add", key, amount))

        def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
            limit = self._timeout if timeout is None else timeout.total_seconds()
            exchanges.ask("wait", list(keys), timeout=limit)

        def check(self, keys: Sequence[str]) -> bool:
            return bool(exchanges.ask("check", list(keys)))

        def delete_key(self, key: str) -> bool:
            return bool(exchanges.ask("delete", key))

        def num_keys(self) -> int:
            return int(exchanges.ask("count"))

        # C++ calls these two by its own names.
        deleteKey, getNumKeys = delete_key, num_keys  # noqa: N815

        def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
            return base64.b64decode(exchanges.ask("swap", key, packed(expected), packed(desired)))

        def set_timeout(self, timeout: Any) -> None:
            self._timeout = timeout.total_seconds()

    return HarnessStore()
