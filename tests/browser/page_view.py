"""Report pages in Chromium, driven by Playwright."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page


READY = "document.documentElement.dataset.ready === 'yes'"
"""What the script of a page says when it has drawn everything."""
LOADED = "document.readyState === 'complete'"
"""The same of a page without a script."""
PHONE = 390
"""Width of a telephone, in CSS pixels."""


@dataclass
class PageView:
    """An open page, with the errors and the requests that it has caused."""

    page: "Page"
    path: Path
    ready: str = READY
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def load(self) -> None:
        """Load the page anew, without what was done to it, and wait until its script is ready.

        A second tab or profile costs Chromium as much again as the page.
        """
        self.page.goto("about:blank")
        self.errors.clear()
        self.requests.clear()
        self.page.goto(self.path.resolve().as_uri())
        self.page.wait_for_function(self.ready)

    def note_console(self, message: "ConsoleMessage") -> None:
        if message.type in {"error", "assert"}:
            self.errors.append(message.text)

    def elements_beyond_edge(self) -> list[str]:
        """Return what reaches beyond the page's right edge outside of a scrolling box."""
        found: list[str] = self.page.evaluate(_BEYOND_EDGE)
        return found

    def broken_images(self) -> list[str]:
        """Return the sources of images that show nothing."""
        found: list[str] = self.page.evaluate(
            "[...document.images].filter(one => one.src && !(one.complete && one.naturalWidth))"
            ".map(one => one.src.slice(0, 80))"
        )
        return found


@contextlib.contextmanager
def opened_page(
    browser: "Browser",
    path: Path,
    *,
    width: int = 1280,
    height: int = 900,
    dark: bool = False,
    ready: str = READY,
) -> Iterator[PageView]:
    """Open a file on a screen of that size, and wait until it is `ready`."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        is_mobile=width <= PHONE,
        color_scheme="dark" if dark else "light",
    )
    with contextlib.closing(context):
        view = PageView(context.new_page(), path, ready)
        view.page.on("pageerror", lambda error: view.errors.append(str(error)))
        view.page.on("console", view.note_console)
        view.page.on("request", lambda request: view.requests.append(request.url))
        view.load()
        yield view


_BEYOND_EDGE = """() => {
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
}"""


def expect(found: Any) -> Any:
    """Playwright's assertions on a locator; all tests are collected without loading Playwright."""
    from playwright.sync_api import expect as expect_of

    return expect_of(found)
