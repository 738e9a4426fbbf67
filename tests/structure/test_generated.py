"""Files that are made from the code are those of this code."""

import generated
import pytest


@pytest.mark.parametrize("name", generated.GENERATED)
def test_a_generated_file_is_up_to_date(name: str) -> None:
    stored = (generated.ROOT / name).read_text(encoding="utf-8")
    assert stored == generated.GENERATED[name](stored), f"{name} is stale; run: make generated"
