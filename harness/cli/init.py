"""`lightrig init`: write the first testbed file of a lab from a few answers."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.cli import SUITES
from lightrig.harness.cli.common import BAD_INPUT, NO, AsJson, echo, give_up, print_json
from lightrig.harness.cli.init_cabling import placeholder_address, write_cabled
from lightrig.harness.vocabulary import InstalledNames
from lightrig.instruments.core.models import models
from lightrig.testbeds import LightrigError, Testbed, TestbedError, load
from lightrig.testbeds.cabled_testbed import Defaults
from lightrig.testbeds.findings import did_you_mean

_SIZE = re.compile(r"([1-9]\d*)x([1-9]\d*)")

TEMPLATE = """\
# yaml-language-server: $schema=schema.json
# An editor completes keys here after `lightrig schema > schema.json`.
# A testbed: what stands in the lab, and how it is cabled. `lightrig check {file}` reads it,
# `lightrig doctor {file}` compares it with the lab.
name: {name}

switches:
  # size is ingress x egress ports. Credentials are named, never written: env:NAME or file:PATH.
  {switch}: {{model: {model}, address: "{address}", {login}size: {size}}}

servers:
  # {{name}} is the server's name, {{n}} the number of its NIC, {{p}} that of a port.
  server[0-{last_server}]:
    address: "{server_address}"
    nics:
      nic0: {{ports: {ports}, netdev: "{netdev}", {rdma}rate: {rate}, transceiver: optics}}

transceivers:
  # From the data sheet: a circuit whose light is too weak or too strong is refused before it is
  # set. These are of 100GBASE-LR4.
  optics:
    wavelength: 1310 nm
    wavelengths: 4
    launch: {{min: -4.3 dBm, max: 4.5 dBm}}
    receive: {{min: -10.6 dBm, max: 4.5 dBm}}
    damage: 5.5 dBm

fibers:
  # NIC transmit to ingress 1, 2, ..., and egress to NIC receive, in this order.
  - server[0-{last_server}].nic0{all_ports} <-> {switch}

plans:
  # The circuits that are wanted together; suites move from one plan to another.
  straight:
    - {first_half}.nic0{all_ports} <-> {second_half}.nic0{all_ports}
{crossed}
limits:
  # A limit has a confidence; without enough samples it is neither kept nor exceeded.
  reconfiguration.signal_recovered: {{p99: 150 ms, confidence: 95 %}}
"""


@dataclass(frozen=True)
class _Answers:
    """Facts about a lab, given and found.

    servers: an even number. size: such as "16x16". login, rdma: "" where there is none.
    """

    name: str
    switch: str
    model: str
    address: str
    login: str
    size: str
    servers: int
    ports: int
    server_address: str
    netdev: str
    rdma: str
    rate: str


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    name: Annotated[str | None, typer.Option(help="Name of the testbed.")] = None,
    switch: Annotated[str, typer.Option(help="Name of the optical switch.")] = "ocs",
    model: Annotated[str | None, typer.Option(help="Model of the optical switch.")] = None,
    address: Annotated[str | None, typer.Option(help="Address, such as tl1://HOST:PORT.")] = None,
    login: Annotated[str | None, typer.Option(help="env:NAME or file:PATH; '' for none.")] = None,
    size: Annotated[str | None, typer.Option(help="Ingress x egress ports.")] = None,
    servers: Annotated[int | None, typer.Option(min=2, help="Number of servers, even.")] = None,
    ports: Annotated[int | None, typer.Option(min=1, help="Switched ports of a server.")] = None,
    server_address: Annotated[str | None, typer.Option(help="With {name} or {n}.")] = None,
    netdev: Annotated[str | None, typer.Option(help="Interface, with {p} for the port.")] = None,
    rdma: Annotated[str | None, typer.Option(help="RDMA device; '' for none.")] = None,
    rate: Annotated[str | None, typer.Option(help="Rate of a port, such as 100G.")] = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="Ask nothing.")] = False,
    probe: Annotated[bool, typer.Option(help="Contact what was named.")] = True,
    cabling: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="List of cables of NetBox or sonic-mgmt; with --names."),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="device,name,kind[,port,model,address,size,...]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask for switch and servers, probe them, and write a commented file that passes `check`.

    With a list of cables it asks and contacts nothing: it writes the fibers of the devices that
    --names maps, and lists the cables that it left out. Exit 0; 1 if something was probed and did
    not answer, the file is written all the same; 2 for an answer that makes no testbed, lists with
    mistakes or a file that exists.
    """
    if file.exists():
        give_up(f"{file} exists; give another name, or change it by hand", BAD_INPUT)
    if cabling is not None or names is not None:
        if cabling is None or names is None:
            give_up("--cabling and --names are given together", BAD_INPUT)
        stated = Defaults(
            model=model or "polatis",
            address=lambda found: address or placeholder_address(found),
            server_address=server_address or "ssh://bench@{name}.invalid",
            login=login or "",
            size=size or "",
            rate=rate or "100G",
        )
        write_cabled(file, name or file.stem, cabling, names, stated, as_json=as_json)
        return

    def asked(given: str | None, question: str, default: str) -> str:
        if given is not None or defaults:
            return default if given is None else given
        return str(typer.prompt(question, default=default, err=as_json))

    found_model = asked(model, f"Model of the optical switch ({', '.join(_switches())})", "polatis")
    if found_model not in models():
        give_up(
            f"no driver for model {found_model!r}{did_you_mean(found_model, models())}", BAD_INPUT
        )
    answers = _Answers(
        name=asked(name, "Name of the testbed", file.stem),
        switch=switch,
        model=found_model,
        address=asked(address, "Its address", "tl1://ocs.invalid"),
        login=asked(login, "Its login, env:NAME or file:PATH (empty: none)", ""),
        size=asked(size, "Its size, ingress x egress", "16x16"),
        servers=_number(asked(_text(servers), "Number of servers", "2"), "servers"),
        ports=_number(asked(_text(ports), "Switched NIC ports of each server", "2"), "ports"),
        server_address=asked(server_address, "Address of a server", "ssh://bench@{name}.invalid"),
        netdev=asked(netdev, "Interface of a port", "ens1f{p}"),
        rdma=asked(rdma, "RDMA device of a port", "mlx5_{p}"),
        rate=asked(rate, "Rate of a port", "100G"),
    )
    _check_size(answers)
    try:
        file.write_text(_document(file, answers), encoding="utf-8")
        testbed = load(file, InstalledNames())
    except OSError as error:
        give_up(f"{file}: {error.strerror}", BAD_INPUT)
    except TestbedError as error:
        file.unlink()
        give_up(f"these answers make no testbed:\n{error}", BAD_INPUT)
    probed = _probe(testbed) if probe and not _is_placeholder(answers) else {}
    if as_json:
        print_json(
            [{"instrument": n, "answered": ok, "text": text} for n, (ok, text) in probed.items()]
        )
    else:
        for instrument, (answered, text) in probed.items():
            echo(f"{instrument}: {'answers as' if answered else 'does not answer:'} {text}")
        echo(f"{file} is written and has no errors.\nnext      lightrig doctor {file}")
        echo(f"or        {SUITES} {file} --instruments simulated")
    if not all(answered for answered, _ in probed.values()):
        raise typer.Exit(NO)


def _switches() -> list[str]:
    return [name for name, entry in models().items() if ".switches." in entry.value]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _number(text: str, what: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        give_up(f"{what}: found {text!r}, expected a number from 1 on", BAD_INPUT)
    return int(text)


def _check_size(answers: _Answers) -> None:
    """End the command unless all ports fit on the switch, and servers can be paired."""
    size = _SIZE.fullmatch(answers.size)
    if size is None:
        give_up(f"size: found {answers.size!r}, expected ingress x egress, e.g. 16x16", BAD_INPUT)
    if answers.servers % 2:
        give_up(f"servers: found {answers.servers}, expected an even number, to pair", BAD_INPUT)
    needed, there = answers.servers * answers.ports, min(int(size[1]), int(size[2]))
    if needed > there:
        give_up(f"{needed} NIC ports do not fit on {there} ports of {answers.switch}", BAD_INPUT)


def _document(file: Path, answers: _Answers) -> str:
    half, last = answers.servers // 2, answers.ports - 1
    all_ports = f".p[0-{last}]" if last else ""
    crossed = ""
    second = _servers(range(half, 2 * half))
    if answers.ports > 1:
        far = f"{second}.nic0.p[{','.join(map(str, range(last, -1, -1)))}]"
    else:
        far = f"{_servers(range(2 * half - 1, half - 1, -1))}.nic0"
    if answers.ports > 1 or half > 1:
        near = f"{_servers(range(half))}.nic0{all_ports}"
        crossed = f"  crossed:\n    - {near} <-> {far}\n"
    return TEMPLATE.format(
        file=file.name,
        **{
            **vars(answers),
            "login": f"login: {answers.login}, " if answers.login else "",
            "rdma": f'rdma: "{answers.rdma}", ' if answers.rdma else "",
        },
        last_server=answers.servers - 1,
        all_ports=all_ports,
        first_half=_servers(range(half)),
        second_half=second,
        crossed=crossed,
    )


def _servers(numbers: range) -> str:
    return f"server[{','.join(map(str, numbers))}]"


def _is_placeholder(answers: _Answers) -> bool:
    return ".invalid" in answers.address and ".invalid" in answers.server_address


def _probe(testbed: Testbed) -> dict[str, tuple[bool, str]]:
    """Return, for each instrument, whether it answers, and its identity or why it does not."""
    # Drivers take a second to import, and are needed only here.
    from lightrig.harness.doctor.connect import connect_lab  # noqa: PLC0415

    try:
        lab = connect_lab(testbed, simulated=False, seed=0)
    except LightrigError as error:
        give_up(f"{testbed.path} is written; nothing was probed: {error}", NO)
    try:
        found = {name: (True, str(one)) for name, one in lab.bench.identities.items()}
        for name, failure in lab.failures.items():
            found[name] = (False, str(failure).partition("\n")[0])
    finally:
        lab.bench.close()
    return found
