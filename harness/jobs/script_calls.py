"""Calls in a training script that cannot run on circuits, found before it is started."""

import ast
from collections.abc import Iterator, Mapping, Sequence

_RPC = (
    "ranks would call each other's functions over TensorPipe, on connections of its own that "
    "neither a rail nor the front end carries"
)
_REFUSED: Mapping[str, str] = {
    "torch.distributed.rpc.init_rpc": _RPC,
    "torch.distributed.autograd.context": f"it needs torch.distributed.rpc, where {_RPC}",
    "torch.distributed.nn.RemoteModule": f"it needs torch.distributed.rpc, where {_RPC}",
}
_BACKENDS = {"gloo", "nccl", "lightrig"}


def calls_that_cannot_run(source: str) -> Sequence[str]:
    """Return the line, the name and the reason of each call that no rank could carry out.

    Of calls by names that the script imports; what a library calls in its place is not seen.
    """
    tree = ast.parse(source)
    names = dict(_imports(tree))
    found = []
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = _dotted(call.func, names)
        if name in _REFUSED:
            found.append((call.lineno, f"{name} cannot run here: {_REFUSED[name]}"))
        elif name.startswith("torch.distributed.") and name.endswith(".init_process_group"):
            found += [
                (call.lineno, f"{name}: backend {backend!r} cannot run here, only gloo and nccl")
                for backend in _backends(call)
                if not {each.rpartition(":")[2].lower() for each in backend.split(",")} <= _BACKENDS
            ]
    return [f"{line}: {why}" for line, why in sorted(found)]


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that the script imports, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                whole = each.name if each.asname else each.name.partition(".")[0]
                yield each.asname or whole, whole
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                yield each.asname or each.name, f"{node.module}.{each.name}"


def _dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    """Return the full name of what is called; "" where it is no name of an import."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value, names)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _backends(call: ast.Call) -> Iterator[str]:
    """Yield the backend of `init_process_group`, where it is written as text."""
    given = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "backend")]
    for each in given:
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
