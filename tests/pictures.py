"""Pictures of the documentation: `make pictures` makes them, and tests name those that are stale.

Each shows what the code draws or prints now: a lab from its testbed file, commands with what they
print, and first screens of pages. Of a screen the visible text is stored beside the picture in
docs/pictures/shown.json, without digits, since times and names of runs differ each time.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from browser.conftest import ARGUMENTS, PROGRAMS
from lab_picture import lab_picture
from planted_nights import two_testbeds

from lightrig.harness.report.escaping import text as escaped
from lightrig.harness.report.nights import write_nights

if TYPE_CHECKING:
    from playwright.sync_api import Browser


ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
SHOWN = PICTURES / "shown.json"
SIZE = {"width": 960, "height": 570}
"""Of a first screen, in CSS pixels."""
COLUMNS = 110
COMMANDS = (
    "lightrig init mine.yaml --defaults",
    "lightrig check mine.yaml",
    "pytest --pyargs lightrig.suites --testbed mine.yaml --instruments simulated --seed 1",
)
_VISIBLE = """() => {
    const lines = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        const range = document.createRange();
        range.selectNodeContents(node);
        const box = range.getBoundingClientRect();
        const text = node.textContent.trim();
        if (text && box.height && box.bottom <= innerHeight) lines.push(text);
    }
    return lines;
}"""


def without_numbers(lines: Sequence[str]) -> list[str]:
    """Return lines without digits, durations, dates, and what names this machine's packages."""
    found = []
    for line in lines:
        if line.startswith(("platform ", "plugins: ")):
            continue
        timeless = re.sub(r"  (?:about|less than) .* left$", "", line)
        timeless = re.sub(r"  \S+ (?:m|µ|n)?(?:s|min|h)$", "", timeless)
        numberless = re.sub(r"\d[\w.+-]*", "#", timeless)
        found.append(" ".join(numberless.strip("=- ").split()))
    return found


def record(folder: Path) -> list[str]:
    """Run `COMMANDS` in an empty folder; return the lines of a terminal of `COLUMNS`."""
    lines = []
    for command in COMMANDS:
        program, *arguments = command.split()
        lines.append(f"$ {command}")
        printed = subprocess.run(
            [Path(sys.executable).with_name(program), *arguments],
            cwd=folder, capture_output=True, text=True, check=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "COLUMNS": str(COLUMNS),
                 "LIGHTRIG_STATE": str(folder), "PYTEST_ADDOPTS": "-p no:cacheprovider"},
        ).stdout.replace(str(folder), "~")  # fmt: skip
        lines += [line.rstrip() for line in printed.splitlines()]
    return lines


def terminal_picture(lines: Sequence[str]) -> str:
    """Return a recording as SVG: lines appear one after another where animation is wanted."""
    shown = [line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…" for line in lines]
    height = 18 * len(shown) + 24
    texts = "\n".join(
        f'<text class="{"typed" if line.startswith("$ ") else "printed"}" x="14" '
        f'y="{18 * number + 26}" style="animation-delay:{number * 0.12:.2f}s">'
        f"{escaped(line)}</text>"
        for number, line in enumerate(shown)
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" role="img" \
aria-label="Terminal: a lab is described, checked and measured in simulation">
<style>
text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d7dce1; white-space: pre }}
.typed {{ fill: #7fe0c0 }}
@media (prefers-reduced-motion: no-preference) {{
  text {{ animation: appear 0.01s both }}
  @keyframes appear {{ from {{ opacity: 0 }} to {{ opacity: 1 }} }}
}}
</style>
<rect width="900" height="{height}" rx="8" fill="#181c21"/>
{texts}
</svg>
"""


def nights_page(folder: Path) -> Path:
    """Return the page of thirty planted nights of two testbeds, of which each has a fault."""
    two_testbeds(folder, reports=True)
    return write_nights(folder, folder / "nights.html")


def run_page(folder: Path) -> Path:
    """Return the page of the last run in a folder where `record` has been."""
    return max(folder.glob("results/runs/*/report.html"))


def visible_text(browser: "Browser", page: Path, picture: Path | None = None) -> list[str]:
    """Return the text on the first screen of a page, without numbers; save its picture."""
    opened = browser.new_page(viewport=SIZE)
    opened.goto(page.resolve().as_uri())
    opened.wait_for_function("document.documentElement.dataset.ready === 'yes'")
    if picture is not None:
        opened.screenshot(path=picture)
    lines: list[str] = opened.evaluate(_VISIBLE)
    opened.close()
    return without_numbers(lines)


def digest(picture: Path) -> str:
    """Return the SHA-256 of a picture's file, in hexadecimal digits."""
    return hashlib.sha256(picture.read_bytes()).hexdigest()


DRAWN: dict[str, Callable[[], str]] = {"lab.svg": lambda: lab_picture("testbeds/workbench.yaml")}
"""Pictures that are the same each time."""


def main() -> None:
    """Make all pictures anew."""
    from playwright.sync_api import sync_playwright

    for name, drawn in DRAWN.items():
        (PICTURES / name).write_text(drawn(), encoding="utf-8")
    program = next(filter(None, map(shutil.which, PROGRAMS)))
    shown: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        lab, nights = Path(name, "lab"), Path(name, "nights")
        lab.mkdir()
        nights.mkdir()
        lines = record(lab)
        (PICTURES / "terminal.svg").write_text(terminal_picture(lines), encoding="utf-8")
        shown["terminal.svg"] = without_numbers(lines)
        for picture, page in (("report.png", run_page(lab)), ("nights.png", nights_page(nights))):
            shown[picture] = visible_text(browser, page, PICTURES / picture)
        browser.close()
    stored = {
        picture: {"sha256": digest(PICTURES / picture), "shows": lines}
        for picture, lines in shown.items()
    }
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    SHOWN.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
