"""Outcomes of the tests that show mechanisms, and the digest of the package that they tested.

A test marked `@pytest.mark.claim("SYSTEM:CLAIM")` shows that claim of that system. `make claims`
runs these tests and writes their outcomes beside the published values
(`lightrig.harness.claims.record_tests`); a comparison reads them where the code is still the same.
"""

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lightrig.harness.claims.published import Published
from lightrig.harness.system_registry import System, installed_systems
from lightrig.testbeds import LightrigError

_PARTS = ("claims", "sections", "fixtures", "generator", "quantities", "orchestrator")
_MISSING = "Its tests have not run on this version{}; `make claims` runs them."


class OutcomesError(LightrigError):
    """A file of test outcomes cannot be read."""


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The outcome of one test of a mechanism.

    case: the name of the test with its parameters. holds: whether it passed; a known exception, a
    test that is expected to fail, does not hold. reason: why it does not, empty if it does.
    """

    __test__ = False

    case: str
    holds: bool
    reason: str = ""

    @property
    def label(self) -> str:
        """The parameters of the test, or its name in words where it has none."""
        name, _, parameters = self.case.partition("[")
        return parameters.removesuffix("]") or name.removeprefix("test_").replace("_", " ")


@dataclass(frozen=True, slots=True)
class TestOutcomes:
    """Outcomes by the name of the claim, on one day.

    missing: why a claim has none.
    """

    __test__ = False

    day: str | None
    claims: Mapping[str, tuple[TestOutcome, ...]]
    missing: str

    def of(self, claim: str) -> tuple[TestOutcome, ...]:
        """Return the outcomes of the tests of a claim, none where they have not run."""
        return self.claims.get(claim, ())


def outcomes_file(published: Path) -> Path:
    """Return the file of test outcomes beside a file of published values."""
    return published.with_name(f"{published.stem}.tests.json")


def outcomes_of(published: Published) -> TestOutcomes:
    """Read the outcomes that hold for the installed code; none if it has changed since.

    Raises `OutcomesError` for a file that cannot be read.
    """
    path = outcomes_file(published.path)
    system = installed_systems().get(published.system)
    if not path.is_file() or system is None:
        return TestOutcomes(None, {}, _MISSING.format(""))
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        claims = {
            name: tuple(TestOutcome(**one) for one in found)
            for name, found in document["claims"].items()
        }
        day, tested = document["day"], document["digest"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OutcomesError(f"{path}: not a file of test outcomes: {error}") from error
    if tested != package_digest(system):
        changed = f", whose code changed since {day}"
        return TestOutcomes(None, {}, _MISSING.format(changed))
    return TestOutcomes(day, claims, _MISSING.format(""))


def write_outcomes(
    published: Path, system: System, day: str, claims: Mapping[str, Iterable[TestOutcome]]
) -> Path:
    """Write the outcomes of a system's tests with the digest of its code; raises `OSError`."""
    lines = [
        f"{json.dumps(name)}: {json.dumps([asdict(one) for one in claims[name]])}"
        for name in sorted(claims)
    ]
    path = outcomes_file(published)
    path.write_text(
        f'{{"digest": "{package_digest(system)}", "day": "{day}", "claims": {{\n'
        + ",\n".join(lines)
        + "\n}}\n",
        encoding="utf-8",
    )
    return path


def package_digest(system: System) -> str:
    """Return a digest of all files of the packages that a system's parts are in."""
    digest = hashlib.sha256()
    for folder in _folders(system):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(folder)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _folders(system: System) -> list[Path]:
    packages = {
        reference.partition(":")[0].rpartition(".")[0] or reference.partition(":")[0]
        for part in _PARTS
        if (reference := getattr(system, part)) is not None
    }
    found = set[Path]()
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise OutcomesError(f"system {system.name}: no package {package}")
        found.update(map(Path, spec.submodule_search_locations))
    outer = {folder for folder in found if not any(o in folder.parents for o in found)}
    return sorted(outer, key=str)
