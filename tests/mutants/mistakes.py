"""Mistakes that people make, at every place of a Python file where each can be made.

A place is found in the syntax tree of the text as it is now, so a mistake always fits its file.
Left out: annotations, decorators, assertions, docstrings, and the texts of errors.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str, str]] = {
    ast.Lt: ("<", "<=", "end of an interval"),
    ast.LtE: ("<=", "<", "end of an interval"),
    ast.Gt: (">", ">=", "end of an interval"),
    ast.GtE: (">=", ">", "end of an interval"),
    ast.Eq: ("==", "!=", "dropped not"),
    ast.NotEq: ("!=", "==", "dropped not"),
    ast.NotIn: ("not in", "in", "dropped not"),
    ast.IsNot: ("is not", "is", "dropped not"),
}
_OPERATORS: dict[type[ast.operator], tuple[str, str, str]] = {
    ast.Add: ("+", "-", "sign"),
    ast.Sub: ("-", "+", "sign"),
    ast.Mult: ("*", "/", "unit factor"),
    ast.Div: ("/", "*", "unit factor"),
}
_PAIRS = (
    ("min", "max", "min and max"),
    ("any", "all", "any and all"),
    ("earliest", "latest", "wrong end"),
    ("lower", "upper", "wrong end"),
    ("low", "high", "wrong end"),
    ("begin", "end", "wrong end"),
    ("began", "ended", "wrong end"),
    ("first", "last", "wrong end"),
    ("minimum", "maximum", "wrong end"),
    ("before", "after", "wrong end"),
    ("ingress", "egress", "wrong end"),
    ("sent", "received", "wrong end"),
)
_OTHER = {
    **{one: (other, kind) for one, other, kind in _PAIRS},
    **{other: (one, kind) for one, other, kind in _PAIRS},
}
_SYMMETRIC = frozenset({"min", "max", "math.hypot", "math.gcd", "np.minimum", "np.maximum"})
_CLOSES = frozenset({"close", "release", "shutdown", "stop", "cancel", "disconnect", "unlink"})
_UNITS = frozenset(10**power for power in (2, 3, 6, 9)) | {60, 3600}


@dataclass(frozen=True, order=True)
class Mistake:
    """One mistake: the bytes from `start` to `end` of a file become `new`.

    lines: first and last line of the statement that has it. kind: what was mistaken.
    """

    start: int
    end: int
    new: str
    kind: str
    lines: tuple[int, int]

    def made(self, text: str) -> str:
        """Return `text` with the mistake."""
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def mistakes(text: str) -> list[Mistake]:
    """Return every mistake that can be made in a file, also the few that do not compile."""
    return [one for one in sorted(set(_Places(text).all())) if one.made(text) != text]


def compiles(text: str) -> bool:
    """Whether `text` is the text of a module."""
    try:
        compile(text, "mistake", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Places:
    def __init__(self, text: str) -> None:
        self._data = text.encode()
        self._tree = ast.parse(text)
        self._offsets = [0]
        for line in self._data.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))

    def all(self) -> Iterator[Mistake]:
        for statement, function in _statements(self._tree.body, None):
            lines = (statement.lineno, _last_line(statement))
            for start, end, new, kind in self._of_statement(statement, function):
                yield Mistake(start, end, new, kind, lines)
            for root in _expressions(statement):
                for node in _within(root):
                    for start, end, new, kind in self._of_expression(node):
                        yield Mistake(start, end, new, kind, lines)

    def _at(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._offsets[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self._offsets[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._at(node)
        return self._data[start:end].decode()

    def _between(
        self, left: ast.AST, right: ast.AST, old: str, new: str, kind: str
    ) -> Iterator[tuple[int, int, str, str]]:
        """Replace an operator, which the syntax tree does not place."""
        start, end = self._at(left)[1], self._at(right)[0]
        between = self._data[start:end].decode()
        if between.count(old) == 1 and "#" not in between:
            yield start, end, between.replace(old, new), kind

    def _of_statement(
        self, statement: ast.stmt, function: str | None
    ) -> Iterator[tuple[int, int, str, str]]:
        start, end = self._at(statement)
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
                yield start, end, "pass", "forgotten close" if name in _CLOSES else "forgotten call"
            case (
                ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"))])
                | ast.AugAssign(target=ast.Attribute(value=ast.Name(id="self")))
            ) if function not in {None, "__init__"}:
                yield start, end, "pass", "stale value"

    def _of_expression(self, node: ast.AST) -> Iterator[tuple[int, int, str, str]]:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=right):
                for op, one, other in zip(ops, [left, *right], right, strict=False):
                    if type(op) in _COMPARISONS:
                        yield from self._between(one, other, *_COMPARISONS[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                if not any(map(_is_text, (left, right))):
                    yield from self._between(left, right, *_OPERATORS[type(op)])
            case ast.BoolOp(op=op, values=values):
                old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for one, other in pairwise(values):
                    yield from self._between(one, other, old, new, "any and all")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield *self._at(node), f"({self._text(operand)})", "dropped not"
            case ast.UnaryOp(op=ast.USub(), operand=operand) if self._text(node) != "-1":
                yield *self._at(node), f"({self._text(operand)})", "sign"
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in _OTHER:
                end = self._at(node)[1]
                yield end - len(name), end, *_OTHER[name]
            case ast.Name(id=name, ctx=ast.Load()) if name in {"min", "max", "any", "all"}:
                yield *self._at(node), *_OTHER[name]
            case ast.Subscript(slice=ast.Constant(value=0) as index):
                yield *self._at(index), "-1", "first and last"
            case ast.Subscript(
                slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)) as index
            ):
                yield *self._at(index), "0", "first and last"
            case ast.Constant(value=int() | float() as value) if value in _UNITS:
                yield *self._at(node), f"({self._text(node)} * 10)", "unit factor"
            case ast.Call(func=called, args=[one, other, *_]) if (
                not any(
                    isinstance(each, ast.Starred | ast.Constant | ast.JoinedStr)
                    for each in (one, other)
                )
                and self._text(called) not in _SYMMETRIC
            ):
                (start, middle), (after, end) = self._at(one), self._at(other)
                between = self._data[middle:after].decode()
                new = f"{self._text(other)}{between}{self._text(one)}"
                yield start, end, new, "swapped arguments"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _statements(
    body: list[ast.stmt], function: str | None
) -> Iterator[tuple[ast.stmt, str | None]]:
    """Yield all statements of all depths, each with the name of its function."""
    for statement in body:
        if isinstance(statement, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom):
            continue
        named = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        yield statement, function
        within = statement.name if named else function  # type: ignore[attr-defined]
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []), within)
        for holder in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            yield from _statements(holder.body, within)


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield what a statement computes itself, without the statements inside it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for name, value in ast.iter_fields(statement):
        if name in {"body", "orelse", "finalbody", "handlers", "annotation", "type_comment"}:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.match_case):
                if each.guard is not None:
                    yield each.guard
            elif isinstance(each, ast.AST):
                yield each


def _within(root: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an expression, but nothing within formatted text."""
    yield root
    if not isinstance(root, ast.JoinedStr):
        for child in ast.iter_child_nodes(root):
            yield from _within(child)


def _last_line(statement: ast.stmt) -> int:
    """Return the last line of a statement itself, without the statements inside it."""
    inner = [each.lineno for field in ("body", "cases") for each in _body(statement, field)]
    if inner:
        return max(statement.lineno, min(inner) - 1)
    return statement.end_lineno or statement.lineno


def _body(statement: ast.stmt, field: str) -> list[ast.stmt]:
    body = getattr(statement, field, [])
    return [each.body[0] if isinstance(each, ast.match_case) else each for each in body]
