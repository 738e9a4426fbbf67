"""Chromium without a window, driven over its debugging pipe: no driver, no library, no socket."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any, Self

TIMEOUT = 30.0
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--remote-debugging-pipe", "--disable-dev-shm-usage"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
PHONE = 390
"""The width of a telephone, in CSS pixels."""


def program() -> str | None:
    """Where Chromium is, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class BrowserError(Exception):
    """The browser did not do what it was asked, in time or at all."""


class Browser:
    """One Chromium process with one page; everything that goes wrong in it is kept in `errors`.

    `requests` are the addresses of all that the page has asked for.
    """

    def __init__(self) -> None:
        path = program()
        if path is None:
            raise BrowserError("no chromium on this machine")
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._out = _pipe()
        self._in, answers = _pipe()
        silence = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        pipes = [(os.POSIX_SPAWN_DUP2, commands, 3), (os.POSIX_SPAWN_DUP2, answers, 4)]
        self._pid = os.posix_spawn(
            path,
            [path, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            os.environ,
            file_actions=[*silence, *pipes],
            setpgroup=0,
        )
        os.close(commands)
        os.close(answers)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self._loaded = False
        self.errors: list[str] = []
        self.requests: list[str] = []
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(one for one in targets if one["type"] == "page")
        attach = {"targetId": target["targetId"], "flatten": True}
        self._session = self._call("Target.attachToTarget", **attach)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and forget its profile."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    # ------------------------------------------------------------------- what tests do

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file as if on a screen of that size, and wait until it has loaded."""
        self.errors.clear()
        self.requests.clear()
        self.look(width=width, height=height, dark=dark)
        self._loaded = False
        self._call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + TIMEOUT
        while not self._loaded:
            self._take(deadline, "the page did not load")

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Change the screen's width and height, and whether its owner prefers dark."""
        phone = width <= 500
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(_described(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait_for(self, expression: str, timeout: float = 60.0) -> Any:
        """Wait until a JavaScript expression is true, and return its value."""
        deadline = time.monotonic() + timeout
        while not (value := self.evaluate(expression)):
            if time.monotonic() > deadline:
                raise BrowserError(f"not true within {timeout:g} s: {expression}")
            time.sleep(0.02)
        return value

    def count(self, selector: str) -> int:
        """How many elements that can be seen match `selector`."""
        shown = "one => one.checkVisibility({visibilityProperty: true})"
        found: int = self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].filter({shown}).length"
        )
        return found

    def text(self, selector: str = "body") -> str:
        """What a person reads in the first element that matches `selector`, once it is there."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.wait_for(f"!!{find}")
        found: str = self.evaluate(f"{find}.innerText")
        return found

    def click(self, selector: str, number: int = 0) -> None:
        """Press the mouse in the middle of the `number`-th element that matches `selector`.

        It must be in sight after scrolling, and nothing else in front of it.
        """
        find = f"document.querySelectorAll({json.dumps(selector)})[{number}]"
        self.wait_for(f"!!{find}")
        scroll = '.scrollIntoView({block: "center", inline: "center", behavior: "instant"})'
        self.evaluate(f"{find}{scroll}")
        self.settle()  # what comes into sight may be drawn only now, and move the rest
        x, y, hit = self.evaluate(
            f"""(() => {{
                const one = {find};
                one{scroll};
                const box = one.getClientRects()[0];
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                const top = document.elementFromPoint(x, y);
                return [x, y, one.contains(top) || top?.closest("label")?.control === one];
            }})()"""
        )
        if not hit:
            raise BrowserError(f"{selector} cannot be clicked: something else is in front of it")
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def press(self, key: str) -> None:
        """Press a key, by its name, such as "Enter" or "Tab"."""
        code = {"Enter": 13, "Tab": 9, " ": 32, "Escape": 27}.get(key, 0)
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self._call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more
            )
        self.settle()

    def settle(self) -> None:
        """Wait until the page has drawn itself, and done what followed from the last input."""
        drawn = "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))"
        self.evaluate(f"new Promise(done => {drawn})")

    def type(self, text: str) -> None:
        """Write `text` where the cursor is."""
        self._call("Input.insertText", text=text)

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        """A picture of the page, or of what of it is in sight, as PNG."""
        options: dict[str, Any] = {"format": "png"}
        if whole:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000)}
            options |= {"captureBeyondViewport": True, "clip": {**clip, "scale": 1}}
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", **options)["data"]))
        return path

    def overflow(self) -> list[str]:
        """What reaches beyond the page's right edge, where nobody can scroll to it in peace."""
        found: list[str] = self.evaluate(
            """(() => {
                const width = document.documentElement.clientWidth;
                const inside = one => {
                    for (let up = one.parentElement; up; up = up.parentElement)
                        if (["auto", "scroll", "hidden", "clip"]
                            .includes(getComputedStyle(up).overflowX)) return true;
                    return false;
                };
                const out = [...document.body.querySelectorAll("*")]
                    .filter(one => one.getClientRects().length && !inside(one)
                        && one.getBoundingClientRect().right > width + 1)
                    .map(one => `${one.tagName}.${one.getAttribute("class")}`);
                if (document.documentElement.scrollWidth > width) out.push("the page itself");
                return out;
            })()"""
        )
        return found

    def broken_images(self) -> list[str]:
        """The sources of images that show nothing."""
        found: list[str] = self.evaluate(
            "[...document.images].filter(one => one.src && !(one.complete && one.naturalWidth))"
            ".map(one => one.src.slice(0, 80))"
        )
        return found

    # ------------------------------------------------------------------- the pipe

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None and not method.startswith("Target."):
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self._take(deadline, method)
            if answer.get("id") == number:
                break
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _take(self, deadline: float, waiting: str) -> dict[str, Any]:
        """The next message; events are noted on the way."""
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0, deadline - time.monotonic()))[0]:
                raise BrowserError(f"no answer within {TIMEOUT:g} s: {waiting}")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise BrowserError(f"chromium has ended: {waiting}")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._note(message["method"], message["params"])
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Runtime.exceptionThrown":
            self.errors.append(_described(params["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in {"error", "assert"}:
            self.errors.append(str([one.get("value") for one in params["args"]]))
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])


def _pipe() -> tuple[int, int]:
    """A pipe whose ends stand clear of the descriptors that the browser expects."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _described(details: dict[str, Any]) -> str:
    thrown = details.get("exception", {}).get("description", "")
    return f"{details.get('text', '')} {thrown}".strip()
