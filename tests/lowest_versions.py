"""Print the lowest versions that pyproject.toml admits, as constraints of pip.

    python tests/lowest_versions.py [EXTRA ...]

Of each requirement of the project and of its extras that has a lower bound. What those require
in turn has any version that fits: the project states no bound for it.
"""

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def lowest(extras: list[str], pyproject: str) -> dict[str, str]:
    """Return the lowest version of each package by name."""
    project = tomllib.loads(pyproject)["project"]
    stated = [*project["dependencies"]]
    for extra in extras:
        stated += project["optional-dependencies"][extra]
    found = {}
    for requirement in map(Requirement, stated):
        for bound in requirement.specifier:
            if bound.operator != ">=":
                raise ValueError(f"{requirement}: expected a lower bound, such as >=1.2")
            found[requirement.name] = bound.version
    return found


if __name__ == "__main__":
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name, version in lowest(sys.argv[1:], text).items():
        print(f"{name}=={version}")
