"""Plausibility of a testbed file: what is allowed and unlikely is a note of `lightrig check`."""

from __future__ import annotations

from collections.abc import Iterator

from lightrig.testbeds.cabling import NoLightPathError
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.model import InstrumentSpec, SwitchSpec, Testbed
from lightrig.testbeds.plans import Plan, Port
from lightrig.testbeds.quantities import format_wavelength
from lightrig.testbeds.schema import Document
from lightrig.testbeds.vocabulary import Vocabulary
from lightrig.testbeds.yaml_positions import Keys

Note = tuple[Keys, bool, str]
"""Keys, whether the key itself is meant, and the sentence."""

_LOSSY = ("dirty connector", "bent fiber")
_IN_FIBERS = {"swapped fibers": 2, "dirty connector": 1, "bent fiber": 1, "wrong port": 2}
"""Faults at ports that fibers leave, with the number of places that are stated then."""


def implausible(testbed: Testbed, document: Document, vocabulary: Vocabulary) -> Iterator[Note]:
    """Yield what in `document` is allowed and rarely meant, part by part."""
    yield from _credentials(testbed, document, vocabulary)
    yield from _addresses(testbed, vocabulary)
    yield from _instruments(testbed)
    yield from _lasers(testbed, vocabulary)
    yield from _plans(testbed)
    yield from _faults(testbed, document)


def _credentials(testbed: Testbed, document: Document, vocabulary: Vocabulary) -> Iterator[Note]:
    for section in ("switches", "servers", "instruments"):
        for name, part in getattr(document, section).items():
            # Nothing is asked of a placeholder, so its credential is not needed.
            if part.login and part.address and ".invalid" not in part.address:
                problem = vocabulary.login_problem(part.login)
                if problem:
                    yield (section, name, "login"), False, f"{problem}; hardware needs it"
    for key, file in (("known_hosts", testbed.known_hosts), ("ssh_config", testbed.ssh_config)):
        if file is not None and (file.is_dir() or not file.exists()):
            yield (key,), False, f"there is no file {file}; hardware needs it"


def _addresses(testbed: Testbed, vocabulary: Vocabulary) -> Iterator[Note]:
    first: dict[str, str] = {}
    alone: list[tuple[str, SwitchSpec | InstrumentSpec]] = [
        ("switches", spec) for spec in testbed.optical_switches.values()
    ]
    alone += [("instruments", spec) for spec in testbed.instruments.values()]
    for section, spec in alone:
        if spec.address is not None and not vocabulary.shares_address(spec.model):
            taken_by = first.setdefault(spec.address, spec.name)
            if taken_by != spec.name:
                at: Keys = (section, spec.name, "address")
                yield at, False, f"{spec.name} has the address of {taken_by}"


def _instruments(testbed: Testbed) -> Iterator[Note]:
    ends = {end.owner for fiber in testbed.fibers for end in (fiber.source, fiber.sink)}
    for name, spec in testbed.instruments.items():
        if spec.kind != "climate_chamber" and name not in ends:
            yield ("instruments", name), True, f"no fiber leads to {name} or from it"


def _lasers(testbed: Testbed, vocabulary: Vocabulary) -> Iterator[Note]:
    """Yield the lasers that cannot be tuned to the transmitters of NICs on the same switch.

    Losses are measured at the wavelength of most of those.
    """
    for name, spec in testbed.instruments.items():
        if spec.kind != "light_source":
            continue
        reach = spec.wavelengths or vocabulary.wavelengths(spec.model)
        switches = {f.sink.owner for f in testbed.fibers if f.source.owner == name}
        senders = [
            (port, switch, kind.wavelength_nm)
            for port, switch in ((f.source, f.sink.owner) for f in testbed.fibers)
            if port.owner in testbed.servers and switch in switches
            if (kind := testbed.transceiver_of(port)) is not None
        ]
        apart = [each for each in senders if reach and each[2] not in reach]
        if reach is None or not apart or len(apart) < len(senders):
            continue
        port, switch, sent = apart[0]
        tunes = f"{format_wavelength(reach.min)} to {format_wavelength(reach.max)}"
        known = "" if spec.wavelengths else f", as a {spec.model} is known to"
        yield (
            ("instruments", name, "wavelengths" if spec.wavelengths else "model"),
            False,
            f"{name} tunes from {tunes}{known}, and {port} on {switch} sends at "
            f"{format_wavelength(sent)}: {name} refuses that wavelength; another laser of its "
            "family has e.g. `wavelengths: {min: 1240 nm, max: 1380 nm}`",
        )


def _plans(testbed: Testbed) -> Iterator[Note]:
    known: dict[object, str] = {}
    for name, plan in testbed.plans.items():
        content = frozenset((switch, circuits) for switch, circuits in plan.circuits.items())
        first = known.setdefault(content, name)
        if first != name:
            yield ("plans", name), True, f"{name} sets the same circuits as {first}"
        linked = {end for link in testbed.links(plan) for end in (link.a, link.b)}
        for switch in plan.circuits:
            yield from _circuits(testbed, plan, switch, linked)


def _circuits(testbed: Testbed, plan: Plan, switch: str, linked: set[Port]) -> Iterator[Note]:
    """Yield the first circuit from NIC to NIC that makes no link, and what a link cannot be."""
    for circuit in sorted(plan.circuits[switch]):
        try:
            source, sink = testbed.cabling.light_path(switch, circuit)
        except NoLightPathError:
            return
        if source.owner not in testbed.servers or sink.owner not in testbed.servers:
            continue
        at: Keys = ("plans", plan.name)
        if source == sink:
            yield at, False, f"{switch} {circuit} returns the light of {source} to itself"
            return
        if source not in linked and testbed.cabling.speaker(sink) == sink:
            yield at, False, f"{switch} {circuit} lights {sink} from {source}, and nothing returns"
            return
        ends = testbed.transceiver_of(source), testbed.transceiver_of(sink)
        colors = [end.wavelength_nm for end in ends if end is not None]
        if len(set(colors)) > 1:
            apart = " and ".join(map(format_wavelength, colors))
            yield at, False, f"{switch} {circuit} joins {source} and {sink}, of {apart}"
            return


def _faults(testbed: Testbed, document: Document) -> Iterator[Note]:
    owners = {*testbed.switches, *testbed.servers, *testbed.instruments}
    for index, fault in enumerate(document.simulation.faults if document.simulation else ()):
        at: Keys = ("simulation", "faults", index)
        owner = fault.at[0].partition(".")[0] if fault.at else ""
        if owner not in owners:
            yield (*at, "at"), False, f"the fault is at {owner!r}, which this testbed lacks"
        elif fault.kind in _IN_FIBERS and len(fault.at) == _IN_FIBERS[fault.kind]:
            ports = fault.at if fault.kind == "swapped fibers" else fault.at[:1]
            sources = {str(fiber.source) for fiber in testbed.fibers}
            for port in ports:
                if port not in sources:
                    advice = did_you_mean(port, sources)
                    sentence = f"no fiber leaves {port!r}, where the fault {fault.kind!r} is"
                    yield (*at, "at"), False, f"{sentence}{advice}"
        if fault.kind in _LOSSY and not fault.loss_db:
            yield at, False, f"the fault {fault.kind!r} loses nothing, expected e.g. loss: 1.5 dB"
