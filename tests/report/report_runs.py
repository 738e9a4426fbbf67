"""Ingredients of small runs, and a fragment of HTML read back."""

import random
import re
from html.parser import HTMLParser

from lightrig.harness.record import Context, Row

HEADER = {"run": "r1", "night": "2026-03-14", "seed": 7, "instruments": "simulated"}
IDENTITIES = ("ocs: HUBER+SUHNER 6000, serial SIM-ocs, firmware 6.7", "server0: Linux, serial 4711")
MS = 1_000_000
STAGES = {
    "acknowledged": (12, 0),
    "los": (2, 10),
    "signal_recovered": (40, 10),
    "carrier_up": (120, 1),
}
"""Milliseconds after the command, and the width of what is known."""

YAML = """\
name: small
about: Two servers, two ports each
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics:
      nic0: {ports: 2, netdev: "ens{p}", rate: 100G, transceiver: lr4}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
plans:
  straight: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
  crossed: [server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0]
limits:
  reconfiguration.signal_recovered: {p99: 60 ms, confidence: 95 %}
  reconfiguration.carrier_up: {p99: 100 ms, confidence: 95 %}
"""


def context(testbed="small", test="test_moves", simulated=True, **conditions):
    plans = {"before": "straight", "after": "crossed"}
    name = f"suites/test_x.py::{test}[{testbed}-straight-crossed]"
    return Context(testbed, name, IDENTITIES, simulated, {**plans, **conditions})


def rows(testbed, events, *, missed=(), cost=False, skip=()):
    """Rows of `events` events of two ports; in the `missed` ones one carrier does not close."""
    dice = random.Random(3)

    def row(subject, quantity, middle, width, event):
        low, high = middle - width // 2, middle + width // 2
        conditions = {"event": event}
        return Row(subject, quantity, middle, max(low, 0), high, "ns", event, conditions)

    for event in range(events):
        for stage, (middle, width) in STAGES.items():
            if (stage, event) in skip:
                continue
            at = int(middle * MS * dice.uniform(0.9, 1.1))
            yield row(testbed, f"reconfiguration.{stage}", at, width * MS, event)
            for port in ("server0.nic0.p0", "server1.nic0.p1"):
                yield row(port, stage, at, width * MS, event)
                share = 0.5 if event in missed and stage == "carrier_up" else 1.0
            conditions = {"event": event, "n": 2}
            yield Row(testbed, f"closure.{stage}", share, share, share, "1", event, conditions)
        for port in ("server0.nic0.p0", "server1.nic0.p1"):
            lost = int(100 * MS * dice.uniform(0.9, 1.1))
            yield row(port, "outage.carrier", lost, MS, event)
            if cost:
                yield row(port, "harness.carrier_stamp", int(4e5 * dice.random()), 10_000, event)


class Page(HTMLParser):
    """Contents of a fragment: ids, references, classes, words, and whether tags match."""

    VOID = frozenset(("br", "input", "meta", "img", "hr"))

    def __init__(self, fragment):
        super().__init__()
        self.fragment = fragment
        self.ids, self.references, self.tags, self.words = [], [], [], []
        self.classes, self.labelled, self._open = [], [], []
        self.feed(fragment)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self._note(tag, dict(attrs))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._note(tag, dict(attrs))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    def _note(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.classes += attrs.get("class", "").split()
        self.labelled += [attrs["aria-label"]] if "aria-label" in attrs else []
        for name in ("href", "src", "xlink:href", "srcset", "action", "data"):
            if name in attrs:
                self.references.append(attrs[name])

    @property
    def captions(self):
        """The captions of its figures, with their markup."""
        return re.findall(r"<figcaption>.*?</figcaption>", self.fragment, re.DOTALL)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())
