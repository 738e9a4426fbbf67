"""What is tried on the virtual lab; a lab has to be booted beside: `make virtual-lab`."""

import pytest

from .lab import attached, is_booted
from .parts import PARTS
from .steps import DEFAULT_FOLDER


@pytest.mark.long
@pytest.mark.parametrize("name", PARTS)
def test_part(name: str) -> None:
    if not is_booted(DEFAULT_FOLDER):
        pytest.skip("no virtual lab is booted")
    print("\n".join(PARTS[name](attached(DEFAULT_FOLDER))))
