"""The servers of a run, and what is wrong at their ports: for a host file of the others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightrig.harness.findings import Finding
from lightrig.harness.record import Results, read_journal
from lightrig.harness.record.run_folder import load_descriptions
from lightrig.harness.report.causes import found_at_begin, stored_findings
from lightrig.testbeds import Port, Testbed
from lightrig.testbeds.plans import names_in


@dataclass(frozen=True, slots=True)
class Node:
    """A server of a run, and a sentence for each port of it that has failed or is out."""

    testbed: str
    server: str
    wrong: tuple[str, ...]


def nodes_of(results: Results, run: str) -> list[Node]:
    """Return the servers of a run's testbeds, in the files' order.

    Raises `QuestionError` if there is no such run, and `RecordError` for what cannot be read, as of
    a run that is not on this machine.
    """
    facts = results.find(run)
    folder = Path(results.place.name) / "runs" / facts.run
    out: Mapping[str, Mapping[str, Any]] = facts.header.get("out", {})
    record = read_journal(folder / "journal.jsonl")
    found: list[Node] = []
    for name, testbed in load_descriptions(record).items():
        wrong = {
            str(port): "out of service"
            for port in map(_port, out.get(name, {}).get("ports", ()))
            if port.owner in testbed.servers
        }
        findings = [*found_at_begin(folder, [name])[name]]
        findings += [one for test in record.tests for one in stored_findings(test)]
        for finding in findings:
            for port in _ports_of(testbed, finding):
                wrong.setdefault(str(port), finding.kind)
        for server in testbed.servers:
            of_server = (f"{p} {why}" for p, why in wrong.items() if p.startswith(f"{server}."))
            found.append(Node(name, server, tuple(sorted(of_server))))
    return found


def _ports_of(testbed: Testbed, finding: Finding) -> Iterator[Port]:
    """Yield the NIC ports that a finding is about: a switch's ingress stands for what lights it."""
    ports = {str(spec.port): spec.port for spec in testbed.nic_ports}
    for name in (name for subject in finding.subjects for name in names_in(subject)):
        port = ports.get(name.partition(".lane")[0])
        owner, _, number = name.partition(".")
        if port is None and owner in testbed.optical_switches and number.isdecimal():
            port = testbed.cabling.transmitter(owner, int(number))
        if port is not None and port.owner in testbed.servers:
            yield port


def _port(name: str) -> Port:
    owner, _, rest = name.partition(".")
    return Port(owner, rest)
