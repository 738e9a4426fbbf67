"""A rendezvous of ranks that share no folder and no network but the harness's connections."""

import base64
import threading
from collections.abc import Callable, Sequence
from typing import Any

Answer = Callable[[Any], None]
"""Takes the result of an operation, as JSON; a value is base64, and an absent one None."""


class RendezvousStore:
    """Keys and values of the ranks of one job, as PyTorch's stores have them.

    Ranks reach it over their control connections, so that it needs no file system that servers
    share and no port that is open between them. It never waits: an operation that must, such as
    `get` of a key that nobody has set, is answered when the key is there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, bytes] = {}
        self._handed: dict[str, tuple[str, int]] = {}
        self._waiting: list[tuple[frozenset[str], str, Sequence[Any], Answer]] = []

    def handle(self, do: str, given: Sequence[Any], answer: Answer) -> None:
        """Do one operation, and call `answer` with its result, now or later.

        `do` is one of set, get, add, wait, check, delete, count and swap, or of hand and take: what
        is handed to a number of readers is gone once that many have taken it. Raises `ValueError`
        for another one.
        """
        with self._lock:
            waits = do in ("get", "take")
            wanted = frozenset(given[0] if do == "wait" else given[:1] if waits else ())
            if wanted - self._values.keys() - self._handed.keys():
                self._waiting.append((wanted, do, given, answer))
                return
            answers = [(answer, self._do(do, given))]
            present = self._values.keys() | self._handed.keys()
            ready = [each for each in self._waiting if each[0] <= present]
            self._waiting = [each for each in self._waiting if each not in ready]
            answers += [(late, self._do(what, of)) for _, what, of, late in ready]
        for tell, result in answers:
            tell(result)

    def _do(self, do: str, given: Sequence[Any]) -> Any:
        match do, *given:
            case "set", key, value:
                self._values[key] = base64.b64decode(value)
            case "get", key:
                return base64.b64encode(self._values[key]).decode()
            case "add", key, by:
                total = int(self._values.get(key, b"0")) + int(by)
                self._values[key] = str(total).encode()
                return total
            case "wait", _:
                pass
            case "hand", key, text, readers:
                self._handed[key] = text, readers
            case "take", key:
                text, readers = self._handed.pop(key)
                if readers > 1:
                    self._handed[key] = text, readers - 1
                return text
            case "check", keys:
                return set(keys) <= self._values.keys()
            case "delete", key:
                return self._values.pop(key, None) is not None
            case "count", *_:
                return len(self._values)
            case "swap", key, expected, desired:
                found = self._values.get(key, b"")
                if found == base64.b64decode(expected):
                    found = self._values[key] = base64.b64decode(desired)
                return base64.b64encode(found).decode()
            case _:
                raise ValueError(f"a store has no operation {do} of {len(given)} arguments")
        return None
