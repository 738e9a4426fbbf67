"""Pages that show each file of an example package, which tests install and run."""

from collections.abc import Sequence
from pathlib import Path

_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml"}


def package_page(title: str, about: str, folder: Path, first: Sequence[str]) -> str:
    """Return a page with the files of `folder`, those named by `first` before all others."""
    names = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix in _LANGUAGES
    }
    parts = [f"# {title}\n\n{about}\n"]
    for name in (*first, *sorted(names - {*first})):
        text = (folder / name).read_text(encoding="utf-8")
        parts.append(f"`{name}`\n\n```{_LANGUAGES[Path(name).suffix]}\n{text}```\n")
    return "\n".join(parts)
