"""Files that are made from the code are those of this code; pages can be made from it."""

import re

import generated
import pytest


@pytest.mark.parametrize("name", generated.GENERATED)
def test_a_generated_file_is_up_to_date(name: str) -> None:
    stored = (generated.ROOT / name).read_text(encoding="utf-8")
    assert stored == generated.GENERATED[name](stored), f"{name} is stale; run: make generated"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("certification", r"\| 3\.1 .*\|"),
        ("dialects", r"\| `tl1` \| `terminal: echo` \| .* right .*\|"),
        ("figures", r"\| 18 \| Faulty nodes .*\|"),
        ("driver-package", "class SimulatedAcmePm4.*"),
        ("instruments", r"\| optical switch \| `polatis` \| `tl1://`.*\|"),
        ("quantities", r"\| `insertion_loss` \| dB \|.*\|"),
        ("system-package", "def rotation.*"),
    ],
)
def test_a_reference_page_has_its_content(name: str, row: str) -> None:
    page = generated.REFERENCE[name]()
    assert re.search(f"^{row}$", page, re.MULTILINE)
    assert page.count("\n") > 40


def test_every_reference_page_is_tried_here() -> None:
    """And is in the navigation of the site."""
    navigation = (generated.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"reference/{name}.md" in navigation for name in generated.REFERENCE)
