"""Requirements of optical switches and profiles of them, from `requirements.yaml`."""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

Class = Literal["harmless", "interrupting", "destructive"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Requirement(_Strict):
    """One requirement. `moves`: how often a port is moved at most; `risk`: of a wrong fail."""

    number: Annotated[str, Field(pattern=r"^\d+\.\d+$")]
    title: str
    code: str
    text: str
    source: str
    method: str
    decision: str
    risk: Annotated[float, Field(ge=0, lt=1)]
    effect: Annotated[Class, Field(alias="class")]
    depends_on: tuple[str, ...] = ()
    moves: Annotated[int, Field(ge=0)]


class Duration(_Strict):
    """How long a clause takes, in s: `fixed`, and `port` for each used port of the smaller side.

    questions: how many the switch is asked, each of which takes what its wire needs. needs: what
    is at the switch where the clause is tried; empty for nothing.
    """

    fixed: Annotated[float, Field(ge=0)] = 0.0
    port: Annotated[float, Field(ge=0)] = 0.0
    questions: Annotated[int, Field(ge=0)] = 6
    needs: Literal["", "light", "notifications", "plans"] = ""


class Profile(_Strict):
    """Numbers of the requirements that a kind of switch has to meet, and of further ones.

    models: those that have this profile by default. partial_batches: whether a refused batch may
    leave its valid circuits made. settling_ms, repeatability_db, and even_ms, by which changes may
    take longer than others: limits; None for none.
    """

    models: tuple[str, ...] = ()
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    partial_batches: bool = False
    settling_ms: float | None = None
    even_ms: float | None = None
    repeatability_db: float | None = None


class Suite(_Strict):
    """A suite of sonic-mgmt, the requirements that cover it, and what it leaves or adds."""

    suite: str
    covered_by: tuple[str, ...] = ()
    note: str = ""


class Requirements(_Strict):
    """All requirements and profiles; `depends_on` names requirements that come before."""

    requirements: tuple[Requirement, ...]
    profiles: Mapping[str, Profile]
    suites: tuple[Suite, ...]
    durations: Mapping[str, Duration]

    @model_validator(mode="after")
    def _names_are_known(self) -> "Requirements":
        known: set[str] = set()
        for each in self.requirements:
            if each.number in known or not known.issuperset(each.depends_on):
                raise ValueError(f"requirement {each.number}: given twice, or depends on a later")
            known.add(each.number)
        if unknown := set(self.durations) - known:
            raise ValueError(f"durations: no requirements {sorted(unknown)}")
        for name, profile in self.profiles.items():
            if unknown := {*profile.required, *profile.optional} - known:
                raise ValueError(f"profile {name}: no requirements {sorted(unknown)}")
        for suite in self.suites:
            if (unknown := set(suite.covered_by) - known) or not (suite.covered_by or suite.note):
                raise ValueError(f"suite {suite.suite}: no requirements {sorted(unknown)}")
        return self

    def of(self, profile: Profile) -> list[Requirement]:
        """Return the requirements of a profile, in the order in which they are tried."""
        wanted = {*profile.required, *profile.optional}
        return [each for each in self.requirements if each.number in wanted]

    def profile_of(self, model: str) -> str:
        """Return the name of the default profile of a model."""
        return next((n for n, each in self.profiles.items() if model in each.models), "generic")


@functools.cache
def requirements() -> Requirements:
    """Return the requirements that are shipped."""
    file = resources.files("lightrig.harness.certify") / "requirements.yaml"
    return Requirements.model_validate(yaml.safe_load(file.read_text("utf-8")))
