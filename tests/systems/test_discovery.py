"""Systems are found by their folder in a checkout, as drivers are by their file."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness import systems
from lightrig.harness.cli import main
from lightrig.harness.system_registry import SystemRegistryError, installed_systems


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a new folder beside those of Lightrig's systems."""
    monkeypatch.setattr(systems, "__path__", [*systems.__path__, str(tmp_path)])
    (tmp_path / "sixth_fabric").mkdir()
    installed_systems.cache_clear()
    yield tmp_path / "sixth_fabric"
    installed_systems.cache_clear()
    sys.modules.pop("lightrig.harness.systems.sixth_fabric", None)


def test_a_new_folder_is_a_system_without_an_installation(folder: Path) -> None:
    (folder / "__init__.py").write_text(
        "from lightrig.harness.system_registry import System\n"
        'SYSTEM = System(name="sixth_fabric", title="Sixth")\n'
    )
    found = installed_systems()
    assert found["sixth_fabric"].title == "Sixth"
    assert {"acos", "infinitehbd", "mixnet", "opus", "railx"} <= found.keys()


def test_a_folder_without_a_system_is_named_with_what_is_missing(folder: Path) -> None:
    (folder / "__init__.py").write_text("")
    with pytest.raises(SystemRegistryError, match=r"(?s)sixth_fabric.*SYSTEM = System\(name="):
        installed_systems()


def test_a_command_names_a_system_that_cannot_be_loaded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "__init__.py").write_text("import no_such_module\n")
    with pytest.raises(SystemExit) as ended:
        main(["claims", "sixth_fabric"])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert "sixth_fabric" in printed
    assert "no_such_module" in printed
    assert "Traceback" not in printed
