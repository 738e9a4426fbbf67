"""Agreements with papers under mutations of their computation: does the verdict change?

`AGREEMENTS` claims (default 20) that agree, and were computed, emulated or tested, are drawn with
`AGREEMENTS_SEED` (default 33). Of each the lines are traced that its computation runs in the code
of its system; up to `AGREEMENTS_TRIES` (default 5) mutations are drawn among them: a sign, an off
by one, a factor two, a dropped term, or a comparison. One with which the computation raises, or
its value stays as it is, proves nothing, and another is drawn, up to `DRAWS`. An agreement that
survives all of them could hardly have differed. Each computation, and the list of agreements before
the first, may take `AGREEMENTS_SECONDS` (default 240; a busy machine needs more).
The campaign fails if more than a tenth of the claims survive.
"""

import ast
import importlib.machinery
import multiprocessing
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.claims.checking import check_claims
from lightrig.harness.claims.computed import computed_by
from lightrig.harness.claims.published import load_published, published_files
from lightrig.harness.record import Results

ROOT = Path(__file__).parents[2]
SECONDS = int(os.environ.get("AGREEMENTS_SECONDS", "240"))
CONTEXT = multiprocessing.get_context("fork")
RAISES = "raises"
DRAWS = 60
"""Mutations of a claim at most."""
KINDS = {"computed", "emulated", "tested"}
_SWAPS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}  # fmt: skip
_COMPARES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip


def folders(system: str) -> list[Path]:
    return [ROOT / "harness" / "systems" / system, ROOT / "suites" / "claims" / system]


# --------------------------------------------------------------------------- mutations


def mutations(tree: ast.Module, lines: set[int]) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield a description of each mutation on `lines`, and a node with what takes its place."""
    for parent in ast.walk(tree):
        if isinstance(parent, ast.JoinedStr):  # words about the value
            for child in ast.walk(parent):
                child.lineno = 0  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if line not in lines:
            continue
        if isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
            other = ast.BinOp(node.left, _SWAPS[type(node.op)](), node.right)
            yield f"{line}: {ast.unparse(node)} -> {ast.unparse(other)}", node, other
            yield f"{line}: {ast.unparse(node)} -> {ast.unparse(node.left)}", node, node.left
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARES:
            ops = [_COMPARES[type(node.ops[0])](), *node.ops[1:]]
            compared = ast.Compare(node.left, ops, node.comparators)
            yield f"{line}: {ast.unparse(node)} -> {ast.unparse(compared)}", node, compared
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            more = ast.Constant(node.value + 1)
            yield f"{line}: {node.value} -> {node.value + 1}", node, more
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield f"{line}: {ast.unparse(node)} -> {ast.unparse(node.operand)}", node, node.operand
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Name | ast.Call):
            double = ast.Return(ast.BinOp(ast.Constant(2), ast.Mult(), node.value))
            yield f"{line}: {ast.unparse(node)} -> {ast.unparse(double)}", node, double


class _Replaced(ast.NodeTransformer):
    def __init__(self, node: ast.AST, other: ast.AST) -> None:
        self._node, self._other = node, other

    def visit(self, node: ast.AST) -> Any:
        return self._other if node is self._node else self.generic_visit(node)


def candidates(traced: dict[str, list[int]]) -> list[tuple[str, int, str]]:
    """Return file, number and description of each mutation on the lines that were traced."""
    found = []
    for name, lines in sorted(traced.items()):
        tree = ast.parse(Path(name).read_text(encoding="utf-8"))
        for number, (what, _, _) in enumerate(mutations(tree, set(lines))):
            found.append((name, number, what))
    return found


def mutated(name: str, number: int, lines: list[int]) -> ast.Module:
    tree = ast.parse(Path(name).read_text(encoding="utf-8"))
    _, node, other = list(mutations(tree, set(lines)))[number]
    fresh: ast.Module = _Replaced(node, other).visit(tree)
    for each in ast.walk(fresh):
        if getattr(each, "lineno", None) == 0:
            each.lineno = 1  # type: ignore[attr-defined]
    return ast.fix_missing_locations(fresh)


# ------------------------------------------------------------------- a process for each


def plant(name: str, tree: ast.Module) -> None:
    """Let the module in the file `name` be loaded from `tree`."""
    loader = importlib.machinery.SourceFileLoader
    get_code = loader.get_code

    def get(self: Any, module: str) -> Any:
        if Path(self.get_filename(module)).resolve() == Path(name):
            return compile(tree, name, "exec")
        return get_code(self, module)

    loader.get_code = get  # type: ignore[method-assign]


class _Tracer:
    """Collects the lines that run in some folders."""

    def __init__(self, wanted: list[Path]) -> None:
        self.lines: dict[str, set[int]] = {}
        self._files: dict[str, str | None] = {}
        self._wanted = wanted

    def __call__(self, frame: Any, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if name not in self._files:
            path = Path(name).resolve()
            inside = any(folder in path.parents for folder in self._wanted)
            self._files[name] = str(path) if inside else None
        if (file := self._files[name]) is None:
            return None
        if event == "line":
            self.lines.setdefault(file, set()).add(frame.f_lineno)
        return self


class _One:
    """Runs the tests of one claim, and keeps whether all of them hold."""

    def __init__(self, claim: str, tracer: _Tracer | None) -> None:
        self._claim, self._tracer = claim, tracer
        self.outcomes: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [
            item
            for item in items
            if any(self._claim in mark.args for mark in item.iter_markers("claim"))
        ]
        sys.settrace(self._tracer)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self.outcomes.append(report.outcome)


def verdict(system: str, name: str, tracer: _Tracer | None = None) -> dict[str, Any]:
    """Return verdict and value of one claim as it is now; tests have no value."""
    published = load_published(published_files()[system])
    claim = next(one for one in published.claims if one.name == name)
    if claim.tested:
        one = _One(f"{system}:{name}", tracer)
        tests = sorted((ROOT / "tests" / "systems" / system).glob("test_*.py"))
        marked = [str(test) for test in tests if f'"{name}"' in test.read_text(encoding="utf-8")]
        with redirect_stdout(sys.stderr):
            pytest.main([*marked, "-q", "-x", "-p", "no:cacheprovider", "-n", "0"], plugins=[one])
        sys.settrace(None)
        holds = one.outcomes and set(one.outcomes) == {"passed"}
        return {"verdict": "agrees" if holds else "differs", "value": None}
    computed_by(system)  # what is imported now is not traced
    sys.settrace(tracer)
    with tempfile.TemporaryDirectory() as empty:
        (checked,) = check_claims(replace(published, claims=(claim,)), Results(empty))
    sys.settrace(None)
    return {"verdict": checked.verdict, "value": repr(checked.value)}


def work(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out the order of a process: trace a claim, or judge it with a mutation."""
    if not order:
        return {"agreements": agreements()}
    system, name = order["system"], order["claim"]
    if "file" not in order:
        tracer = _Tracer(folders(system))
        found = verdict(system, name, tracer)
        lines = {file: sorted(numbers) for file, numbers in tracer.lines.items()}
        return {**found, "lines": lines}
    plant(order["file"], mutated(order["file"], order["number"], order["lines"]))
    return verdict(system, name)


def _answer(order: dict[str, Any], end: Connection) -> None:
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        sys.stdout = sys.stderr = nothing
        try:
            end.send(work(order))
        except BaseException as error:
            end.send({"verdict": f"{RAISES} {error!r:.80}", "value": None})
        os._exit(0)


def process(**order: Any) -> dict[str, Any]:
    """Return the answer of a process of its own; one that raises or hangs has no verdict.

    It is forked from this one, which has loaded no code of a system but its name.
    """
    mine, its = CONTEXT.Pipe()
    child = CONTEXT.Process(target=_answer, args=(order, its))
    child.start()
    answer: dict[str, Any] = {"verdict": f"{RAISES} nothing in {SECONDS} s", "value": None}
    if mine.poll(SECONDS):
        answer = mine.recv()
    child.kill()
    child.join()
    return answer


# --------------------------------------------------------------------------- the campaign


def agreements() -> list[tuple[str, str]]:
    """Return system and name of all claims that count and agree by computation or test."""
    found = []
    with tempfile.TemporaryDirectory() as empty:
        for system, path in published_files().items():
            for one in check_claims(load_published(path), Results(empty)):
                tested = one.claim.tested and one.outcome == "not measured"
                if one.counted and (tested or (one.verdict == "agrees" and one.kind in KINDS)):
                    found.append((system, one.claim.name))
    return found


def main() -> bool:
    seed = os.environ.get("AGREEMENTS_SEED", "33")
    count = int(os.environ.get("AGREEMENTS", "20"))
    tries = int(os.environ.get("AGREEMENTS_TRIES", "5"))
    listed = process()
    if "agreements" not in listed:
        raise SystemExit(f"the list of agreements: {listed['verdict']}")
    everything = listed["agreements"]
    order = random.Random(seed).sample(everything, len(everything))
    tried = changed = at_once = 0
    print(f"{count} of {len(everything)} agreements, seed {seed}, up to {tries} mutations each")
    for system, name in order:
        if tried == count:
            break
        traced = process(system=system, claim=name)
        if traced["verdict"] != "agrees":  # a tested claim of which a case fails
            continue
        tried += 1
        drawn = candidates(traced["lines"])
        random.Random(f"{seed} {system}:{name}").shuffle(drawn)
        moved = False
        run = 0
        for file, index, what in drawn[:DRAWS]:
            lines = traced["lines"][file]
            found = process(system=system, claim=name, file=file, number=index, lines=lines)
            stays = found["value"] is not None and found["value"] == traced["value"]
            place = f"{Path(file).relative_to(ROOT)}:{what}"
            seen = "same value" if stays else found["verdict"]
            print(f"{system}:{name}\t{seen}\t{place}", flush=True)
            if stays or seen.startswith(RAISES):
                continue
            run += 1
            moved = seen != "agrees"
            if moved or run == tries:
                break
        changed += moved
        at_once += moved and run == 1
        if not moved:
            print(f"{system}:{name}\tSURVIVES", flush=True)
    print(f"{changed} of {tried} verdicts changed, {at_once} of them by the first mutation")
    return changed >= 0.9 * tried
