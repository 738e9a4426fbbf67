"""`lightrig report --message` and `lightrig known`: a person is told of what is new, once.

The file of each morning's lab has what is planted that night; cron's line is that of the how-to.
"""

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import preloaded
import pytest
from runs.running import ROOT, started
from runs.test_findings_of_nights import EXCHANGED, LAB

BIN = Path(sys.executable).parent
PAGE = ROOT / "docs" / "how-to" / "nightly.md"
FIRST = '{fault: stale cross-connect, at: [ocs, "1>9"]}'
SECOND = ", ".join(re.findall("{fault.*}", EXCHANGED))


class Chat(http.server.BaseHTTPRequestHandler):
    """Takes messages."""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.posts.append(self.rfile.read(length).decode())  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def chat() -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), Chat) as server:
        server.posts = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def night(tmp_path: Path) -> Callable[..., None]:
    def measured(day: int, *faults: str) -> None:
        plants = f"simulation: {{faults: [{', '.join(faults)}]}}\n" if faults else ""
        (tmp_path / "lab.yaml").write_text(LAB + plants)
        options = ("--instruments", "simulated", "--profile", "night")
        name = ("--run-name", f"202601{day:02}-020000-lab")
        suites = ("suites/test_insertion_loss.py", "suites/test_reconfiguration.py")
        chosen = (*suites, "-k", "every_circuit or between_plans", "--samples", "2")
        with started(
            (*chosen, "--testbed", tmp_path / "lab.yaml", *options, *name), tmp_path / "results"
        ) as run:
            ended = run.end()
        assert ended.code == 0, ended.output

    return measured


def lightrig(folder: Path, *command: str) -> tuple[int, str, str]:
    process = preloaded.Process(
        ["lightrig", *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    printed, errors = process.communicate(timeout=120)
    assert process.returncode is not None
    return process.returncode, printed, errors


def cron_line(url: str) -> str:
    """Return the how-to's line that posts, for this folder and server."""
    (line,) = re.findall(r"^0 7 \* \* \* +cd \S+ && (.*curl.*)$", PAGE.read_text(), re.MULTILINE)
    return line.replace("https://chat.example/hooks/lab", url).replace(".venv/bin", str(BIN))


@pytest.mark.long
def test_eight_mornings_with_two_plants(
    night: Callable[..., None], chat: http.server.HTTPServer, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{chat.server_address[1]}/"
    planted = {
        1: (),
        2: (FIRST,),
        3: (FIRST,),
        4: (FIRST, SECOND),
        5: (FIRST, SECOND),
        6: (FIRST, SECOND),
        7: (SECOND,),
        8: (SECOND,),
    }
    posts: list[str] = chat.posts  # type: ignore[attr-defined]
    messages: dict[int, str] = {}
    for day, faults in planted.items():
        night(day, *faults)
        before = len(posts)
        done = subprocess.run(
            ["bash", "-c", cron_line(url)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert len(posts) <= before + 1, done
        messages.update((day, post) for post in posts[before:])
        if day == 2:
            (name,) = re.findall(r"card `([^`]+)`", messages[2])
            entered = ("known", "lab.yaml", name, "--until", "2026-01-05", "--because", "LAB-123")
            code, printed, errors = lightrig(tmp_path, *entered)
            assert code == 0, errors
            assert f"{name}  until 2026-01-05  LAB-123" in printed
    assert sorted(messages) == [2, 4, 6, 7]
    headings = {day: re.findall("^## (.*)$", text, re.MULTILINE) for day, text in messages.items()}
    assert [len(headings[day]) for day in (2, 6, 7)] == [1, 1, 1], headings
    assert all(one.startswith("New: ") for day in (2, 4) for one in headings[day])
    assert "1>9" in messages[2]
    assert "swapped" in messages[4]
    assert "1>9" not in messages[4]
    assert headings[6] == [f"Date passed: `{name}`"]
    assert headings[7][0].startswith("Gone: ")
    assert name in messages[7]
    page = (tmp_path / "results" / "nights.html").read_text()
    assert re.search(r"card <code>[^<]+</code>", page)


def test_bad_input(night: Callable[..., None], tmp_path: Path) -> None:
    night(2, FIRST)
    code, printed, _ = lightrig(tmp_path, "report", "--message", "new.md", "--json")
    assert code == 1, printed
    (name,) = re.findall(r"card `([^`]+)`", (tmp_path / "new.md").read_text())
    # The same night once more is no other morning: a post that failed finds its text.
    text = (tmp_path / "new.md").read_text()
    code, printed, _ = lightrig(tmp_path, "report", "--message", "new.md")
    assert (code, "nothing new; new.md has what was new of this night" in printed) == (0, True)
    assert (tmp_path / "new.md").read_text() == text
    stated = ("--until", "2026-02-01", "--because", "LAB-123")
    for command, problem in [
        (("known", "lab.yaml", f"{name}x", *stated), f"Did you mean {name!r}?"),
        (("known", "lab.yaml", name, "--until", "soon", "--because", "x"), "expected one such as"),
        (("known", "lab.yaml", name, "--until", "2026-02-30", "--because", "x"), "expected one"),
        (("known", "lab.yaml", name, "--until", "2026-02-01"), "--because"),
        (("known", "lab.yaml", name, "--until", "2026-02-01", "--because", " "), "has no reason"),
        (("known", "lab.yaml", name, "--remove"), "has no card"),
        (("known", "lab.yaml", "--until", "2026-02-01"), "which card?"),
        (("known", "lab.yaml", name, *stated, "--results", "no"), "no such folder"),
        (("report", "last", "--message", "new.md"), "name no run"),
    ]:
        code, printed, errors = lightrig(tmp_path, *command)
        assert code in (2, 3), (command, printed)
        assert problem.lower() in errors.lower(), errors
    assert (
        not (tmp_path / "lab.exceptions.yaml").exists()
        or "known" not in (tmp_path / "lab.exceptions.yaml").read_text()
    )
    assert lightrig(tmp_path, "known", "lab.yaml", name, *stated)[0] == 0
    night(3, FIRST)
    (tmp_path / "elsewhere").mkdir()
    for file in ("lab.yaml", "lab.exceptions.yaml"):
        (tmp_path / file).rename(tmp_path / "elsewhere" / file)
    code, _, errors = lightrig(tmp_path, "report", "--message", "new.md")
    # What is known is not forgotten where the file has moved, and that it has is not concealed.
    assert (code, (tmp_path / "new.md").exists()) == (0, False)
    assert "lab.yaml is not there any more, so its cards are known as its last run had" in errors
    for file in ("lab.yaml", "lab.exceptions.yaml"):
        (tmp_path / "elsewhere" / file).rename(tmp_path / file)
    code, printed, _ = lightrig(tmp_path, "known", "lab.yaml", name, "--remove")
    assert (code, "no card is known" in printed) == (0, True)
    state = tmp_path / "results" / "message.json"
    state.write_text("{}")
    code, _, errors = lightrig(tmp_path, "report", "--message", "new.md")
    assert (code, "is damaged" in errors) == (3, True)
