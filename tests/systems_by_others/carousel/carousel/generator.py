"""The testbed file that `lightrig generate carousel` writes."""

from typing import Annotated

import typer

from carousel.planning import rotation

_FILE = """\
name: carousel
about: {servers} servers whose pairs are joined in turn
system: carousel

switches:
  ocs:
    model: polatis
    address: tl1://ocs.invalid
    login: env:OCS_LOGIN
    size: {servers}x{servers}

servers:
  server[0-{last}]:
    address: ssh://bench@{{name}}.invalid
    nics:
      nic0: {{netdev: ens1np0, rate: 100G, transceiver: lr4}}

transceivers:
  lr4:
    wavelength: 1310 nm
    wavelengths: 4
    launch: {{min: -4.3 dBm, max: 4.5 dBm}}
    receive: {{min: -10.6 dBm, max: 4.5 dBm}}

fibers:
  - server[0-{last}].nic0 <-> ocs

plans:
{plans}

limits:
  carousel.cycle: {{p99: 1 s, confidence: 95 %}}

simulation:        # the truth a simulated world is built from; hardware never sees it
  switches:
    ocs: {{acknowledge: {{mean: 43 ms}}, dark: {{mean: 3 ms}}, settle: {{mean: 40 ms}}}}
"""


def generate(
    servers: Annotated[int, typer.Option(min=2, help="Servers, an even number.")] = 4,
) -> str:
    """Write servers with one port each on one switch, and a plan for each matching."""
    plans = [
        f"  matching{number}: [{', '.join(f'server{a}.nic0 <-> server{b}.nic0' for a, b in pairs)}]"
        for number, pairs in enumerate(rotation(servers))
    ]
    return _FILE.format(servers=servers, last=servers - 1, plans="\n".join(plans))
