"""Figures as files: each appears whole, or not at all."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lightrig.harness.claims.figures.drawing import svg_of
from lightrig.harness.claims.figures.drawn import DrawnFigure
from lightrig.harness.claims.figures.page import figures_page
from lightrig.harness.claims.figures.table import csv_of
from lightrig.harness.claims.published import Published
from lightrig.testbeds import LightrigError

SUFFIXES = (".svg", ".csv", ".html")


class FigureOutputError(LightrigError):
    """A file or a folder of figures cannot be written."""


def check_file(path: Path) -> None:
    """Raise `FigureOutputError` where a file of figures could not be written."""
    if path.suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise FigureOutputError(f"{path}: found {path.suffix!r}, expected one of {known}")
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"{path.parent} is no folder"
        raise FigureOutputError(f"{path}: cannot be written: {why}")
    _check_writable(path.parent)


@contextmanager
def prepared_folder(folder: Path) -> Iterator[None]:
    """Make a folder of figures, and remove it again where the block raises before it has files.

    Raises `FigureOutputError` where it cannot be made or written.
    """
    existed = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FigureOutputError(f"{folder}: cannot be made: {error.strerror}") from error
    try:
        _check_writable(folder)
        yield
    except BaseException:
        if not existed and not any(folder.iterdir()):
            folder.rmdir()
        raise


def write_file(path: Path, published: Published, figure: DrawnFigure) -> None:
    """Write one figure as SVG, CSV or a page, by the name of the file.

    Raises `FigureOutputError`.
    """
    if path.suffix == ".svg":
        text = svg_of(figure)
    elif path.suffix == ".csv":
        text = csv_of([figure])
    else:
        text = figures_page(published, [figure])
    _write({path: text})


def write_folder(
    folder: Path, published: Published, figures: Sequence[DrawnFigure]
) -> Iterable[Path]:
    """Write drawing and table of each figure, and a page of all; raises `FigureOutputError`."""
    texts = {folder / "index.html": figures_page(published, figures)}
    texts[folder / "figures.csv"] = csv_of(figures)
    for one in figures:
        if one.is_drawn:
            texts[folder / f"fig{one.figure.number}.svg"] = svg_of(one)
            texts[folder / f"fig{one.figure.number}.csv"] = csv_of([one])
    _write(texts)
    return texts


def _write(texts: dict[Path, str]) -> None:
    """Write files beside their places, then move them there together."""
    drafts: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            drafts[path] = path.with_name(f".{path.name}.draft")
            drafts[path].write_text(text, encoding="utf-8")
        for path, draft in drafts.items():
            draft.replace(path)
    except OSError as error:
        raise FigureOutputError(f"{error.filename}: cannot be written: {error.strerror}") from error
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def _check_writable(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FigureOutputError(f"{folder}: cannot be written: {error.strerror}") from error
