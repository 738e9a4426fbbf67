"""As much of PyTorch as a rank of a training job needs, where it is not installed.

A rank is alone: what others would add is what it gives.
"""

import sys
from concurrent import futures as _futures
from types import ModuleType, SimpleNamespace

__version__ = "0.stand-in"


class Tensor(list):
    def numel(self):
        return len(self)

    def element_size(self):
        return 4

    @property
    def shape(self):
        return (len(self),)


class _Future:
    def __init__(self):
        self._future = _futures.Future()
        self.set_result = self._future.set_result
        self.set_exception = self._future.set_exception
        self.done = self._future.done

    def wait(self):
        return self._future.result()


class _Work:
    def __init__(self, future=None):
        self._done = future

    def wait(self):
        if self._done is not None:
            self._done.wait()
        return True


class _ProcessGroup:
    def __init__(self, rank, size):
        self._rank, self._size = rank, size

    def rank(self):
        return self._rank

    def size(self):
        return self._size


class _Alone:
    """A backend among whose ranks nothing goes wrong but what a tensor asks for."""

    def __init__(self, store, rank, size, timeout):
        pass

    def allreduce(self, tensors, options=None):
        if tensors[0][0] < 0:
            raise RuntimeError("Connection closed by peer")
        return _Work()

    def send(self, tensors, peer, tag):
        return _Work()

    recv = send


class _Store:
    def __init__(self, path=None, ranks=1):
        self._counts = {}

    def add(self, name, by):
        self._counts[name] = self._counts.get(name, 0) + by
        return self._counts[name]

    def set(self, name, value):
        self._counts[name] = value

    def wait(self, names):
        assert set(names) <= self._counts.keys()


_plugins: dict = {}


class Backend:
    @staticmethod
    def register_backend(name, maker, devices):
        _plugins[name] = maker


_groups: list = []


def init_process_group(backend=None, store=None, rank=0, world_size=1, **more):
    _groups[:] = []
    return _made(backend, rank, list(range(world_size)), store or _Store())


def new_group(ranks=None, timeout=None, backend=None):
    rank = _groups[0][0].rank()
    return _made(backend, ranks.index(rank), list(ranks), _Store()) if rank in ranks else None


def _made(backend, rank, ranks, store):
    maker = _plugins.get(backend, _Alone)
    _groups.append((maker(store, rank, len(ranks), None), ranks))
    return _groups[-1][0]


distributed = ModuleType("torch.distributed")
distributed.__dict__.update(
    distributed_c10d=ModuleType("torch.distributed.distributed_c10d"),
    Backend=Backend,
    ProcessGroup=_ProcessGroup,
    ProcessGroupGloo=_Alone,
    Work=_Work,
    Store=_Store,
    get_world_size=lambda: len(_groups[0][1]),
    get_process_group_ranks=lambda group: next(r for g, r in _groups if g is group),
    is_initialized=lambda: bool(_groups),
    destroy_process_group=_groups.clear,
    init_process_group=init_process_group,
    new_group=new_group,
)
distributed.distributed_c10d.__dict__.update(
    init_process_group=init_process_group, new_group=new_group
)
sys.modules["torch.distributed"] = distributed

cuda = SimpleNamespace(is_available=lambda: False)
futures = SimpleNamespace(Future=_Future)
_C = SimpleNamespace(_distributed_c10d=SimpleNamespace(_create_work_from_future=_Work))


def set_num_threads(count):
    pass
