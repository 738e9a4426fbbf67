"""Outcomes of the tests that show mechanisms, and a digest of the code that each of them tested.

A test marked `@pytest.mark.claim("SYSTEM:CLAIM")` shows that claim of that system. `make claims`
runs these tests and writes their outcomes beside the published values
(`lightrig.harness.claims.record_tests`); a comparison reads them where the code is still the same.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lightrig.harness.claims.covered_code import CoveredCodeError, SystemCode
from lightrig.harness.claims.published import Published
from lightrig.harness.system_registry import System, installed_systems
from lightrig.testbeds import LightrigError


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
class TestedClaim:
    """The tests of one claim.

    imports: modules of the system that the tests import. outcomes: one a test.
    """

    __test__ = False

    imports: frozenset[str]
    outcomes: tuple[TestOutcome, ...]


@dataclass(frozen=True, slots=True)
class TestOutcomes:
    """Outcomes by the name of the claim, on one day.

    day: None where nothing is stored. changed: claims whose code has changed since that day.
    """

    __test__ = False

    day: str | None = None
    claims: Mapping[str, tuple[TestOutcome, ...]] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()

    def of(self, claim: str) -> tuple[TestOutcome, ...]:
        """Return the outcomes of the tests of a claim, none where they have not run."""
        return self.claims.get(claim, ())

    def missing(self, claim: str) -> str:
        """Return why a claim has no outcomes."""
        since = f", whose code changed since {self.day}" if claim in self.changed else ""
        return f"Its tests have not run on this version{since}; `make claims` runs them."


def outcomes_file(published: Path) -> Path:
    """Return the file of test outcomes beside a file of published values."""
    return published.with_name(f"{published.stem}.tests.json")


def outcomes_of(published: Published) -> TestOutcomes:
    """Read the outcomes of those claims whose code is as it was when they were tested.

    Raises `OutcomesError` for a file that cannot be read.
    """
    path = outcomes_file(published.path)
    system = installed_systems().get(published.system)
    if not path.is_file() or system is None:
        return TestOutcomes()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        claims = {
            name: (one["code"], tuple(TestOutcome(**test) for test in one["tests"]))
            for name, one in document["claims"].items()
        }
        day, codes = document["day"], {key: list(each) for key, each in document["code"].items()}
        code = SystemCode(system)
        same = {key for key, imports in codes.items() if _digest(code, imports) == key}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OutcomesError(f"{path}: not a file of test outcomes: {error!r}") from error
    valid = {name: tests for name, (digest, tests) in claims.items() if digest in same}
    return TestOutcomes(day, valid, frozenset(claims.keys() - valid.keys()))


def write_outcomes(
    published: Path, system: System, day: str, claims: Mapping[str, TestedClaim]
) -> Path:
    """Write the outcomes of a system's tests with digests of their code.

    Tests that import no module of the system, such as those that start its programs, stand for all
    of its code. Raises `OSError`.
    """
    code = SystemCode(system)
    lines, codes = [], {}
    for name, tested in sorted(claims.items()):
        imports = sorted(tested.imports or code.modules())
        digest = code.digest(imports)
        codes[digest] = imports
        tests = [asdict(one) for one in tested.outcomes]
        lines.append(f"{json.dumps(name)}: {json.dumps({'code': digest, 'tests': tests})}")
    path = outcomes_file(published)
    path.write_text(
        f'{{"day": "{day}", "code": {json.dumps(codes, indent=1)}, "claims": {{\n'
        + ",\n".join(lines)
        + "\n}}\n",
        encoding="utf-8",
    )
    return path


def _digest(code: SystemCode, imports: Iterable[str]) -> str | None:
    """Return the digest of the code as it is installed; None where a module is no longer there."""
    try:
        return code.digest(imports)
    except CoveredCodeError:
        return None
