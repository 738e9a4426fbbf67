"""Pins of the dependencies, and their hashes."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def test_every_pin_has_hashes_and_names_no_host() -> None:
    pins = PIN.findall((ROOT / "constraints.txt").read_text())
    text = (ROOT / "constraints.hashes.txt").read_text()

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    hashed = {normal(name): version for name, version in PIN.findall(text)}
    assert hashed == {normal(name): version for name, version in pins}, "run: make hashes"
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text
    assert "--index" not in text


def test_no_version_of_the_api_is_older_than_what_was_tried() -> None:
    """Of starlette 0.41 to 1.0 one header passed the token."""
    pins = dict(PIN.findall((ROOT / "constraints.txt").read_text()))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    wanted = {f"{name}>={pins[name]}" for name in ("fastapi", "starlette", "uvicorn")}
    assert wanted == set(extras["api"])
    assert wanted <= set(extras["dev"])
