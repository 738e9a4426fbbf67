"""The lowest versions that are tried are those that pyproject.toml states."""

import pytest

from tests.lowest_versions import lowest

PROJECT = """
[project]
dependencies = ["a>=1.2", "b-c>=3.0.1,<4", "d"]
optional-dependencies = {x = ["e[more]>=2025.9"], y = ["f>=7"]}
"""


def test_a_requirement_with_another_bound_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected a lower bound"):
        lowest([], PROJECT)


def test_each_lower_bound_is_one_version() -> None:
    stated = PROJECT.replace(",<4", "")
    assert lowest(["x"], stated) == {"a": "1.2", "b-c": "3.0.1", "e": "2025.9"}
