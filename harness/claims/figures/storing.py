"""Write the stored series of figures, and what each figure of a paper came to; `make figures`.

    python -m lightrig.harness.claims.figures.storing RESULTS SYSTEM...

Series of runs are taken from the results where they have any, and stay as they were where they
have none. Lengthy computations are repeated where their code has changed.
"""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightrig.harness.claims.figures.declarations import Figure, figures_file, load_figures
from lightrig.harness.claims.figures.drawn import DrawnFigure, FigureMaker
from lightrig.harness.claims.figures.stored import StoredSeries, read_stored, write_stored
from lightrig.harness.claims.published import Published, load_published, published_files
from lightrig.harness.record import Results
from lightrig.instruments.clock import SystemClock, wall_time


def store(published: Published, results: Results) -> Path:
    """Write a paper's stored series and the summary of its figures; return the latter's file.

    Raises `LightrigError` and `OSError`.
    """
    maker, clock = FigureMaker(published, results), SystemClock()
    figures = load_figures(published)
    series: dict[str, StoredSeries] = {}
    seconds: dict[str, float] = {}
    for number, figure in figures.items():
        begun = clock.now()
        series |= _series(published, maker, figure)
        seconds[number] = (clock.now() - begun) / 1e9
    write_stored(published, series)
    summary: dict[str, Any] = {}
    for number, figure in figures.items():
        begun = clock.now()
        drawn = maker.make(figure)
        seconds[number] += (clock.now() - begun) / 1e9
        summary[number] = outcome_of(drawn, seconds[number])
    path = summary_file(published.path)
    document = {"day": f"{wall_time():%Y-%m-%d}", "figures": summary}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def summary_file(published: Path) -> Path:
    """Return the file of what a paper's figures came to."""
    return figures_file(published).with_suffix(".summary.json")


def outcome_of(drawn: DrawnFigure, seconds: float) -> dict[str, Any]:
    """Return what a figure came to: origins, values compared, and the largest difference."""
    kinds = dict.fromkeys(one.kind for panel in drawn.panels for one in panel.series)
    compared = [one for one in drawn.compared if one.ours is not None]
    off = [one.difference for one in compared if not math.isnan(one.difference)]
    return {
        "drawn": drawn.is_drawn,
        "from": list(kinds),
        "stored": any(
            source.stored for panel in drawn.figure.panels for source in panel.part.sources
        ),
        "printed": len(drawn.compared),
        "compared": len(compared),
        "agree": sum(one.outcome == "agrees" for one in compared),
        "largest difference": float(f"{max(off):.3g}") if off else None,
        "seconds": float(f"{seconds:.2g}"),
    }


def _series(published: Published, maker: FigureMaker, figure: Figure) -> dict[str, StoredSeries]:
    found = {}
    for name, source in maker.sources(figure):
        if not source.stored:
            continue
        before = read_stored(published, name)
        if source.rows is None and before is not None and maker.is_current(source, before):
            found[name] = before
            continue
        fresh = maker.fresh(source)
        if fresh is None and before is None:
            continue
        chosen = fresh or before
        assert chosen is not None
        found[name] = replace(chosen, day=chosen.day or f"{wall_time():%Y-%m-%d}")
    return found


def main() -> None:
    """Store what the command line names."""
    results, *systems = sys.argv[1:]
    for system in systems or published_files():
        print(store(load_published(published_files()[system]), Results(results)))


if __name__ == "__main__":
    main()
