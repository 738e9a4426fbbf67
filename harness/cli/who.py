"""`lightrig who`: who uses the instruments of a testbed, and what runs have left to restore."""

from collections.abc import Mapping
from typing import Any

from lightrig.harness.bench import leftovers as saved
from lightrig.harness.bench.assembly import spec_of
from lightrig.harness.bench.lease import MachineLocks, address_keys, owner_text
from lightrig.harness.bench.lease_queue import waiting_for
from lightrig.harness.bench.shared_lease import SharedFolder
from lightrig.harness.cli.common import AsJson, File, load_testbed, print_json
from lightrig.harness.cli.lab import lab
from lightrig.harness.cli.terminal import err, out
from lightrig.harness.machine_folder import machine_folder
from lightrig.testbeds import Testbed


def who(file: File, as_json: AsJson = False) -> None:
    """Show who uses each instrument, since when and for what; take and contact nothing.

    Below stand the states that runs and commands have saved, which `lightrig restore` restores. The
    lock of a process that was killed is no holder. Exit 0, 2 for an invalid file, 3 where the
    folder of leases cannot be read.
    """
    testbed = load_testbed(file)
    rows = lab(lambda: _rows(testbed))
    left = lab(lambda: saved.leftovers(testbed))
    states = [
        {
            "instrument": each.state.origin.instrument,
            "origin": str(each.state.origin),
            "by_hand": str(each.state.by_hand) if each.state.by_hand else None,
        }
        for each in left.left
    ]
    if as_json:
        print_json({"instruments": rows, "saved": states})
    else:
        width = max((len(row["instrument"]) for row in rows), default=0)
        for row in rows:
            out.print(f"{row['instrument']:<{width}}  {_use(row)}", soft_wrap=True)
        for state in states:
            stays = f"; set by hand by {state['by_hand']}" if state["by_hand"] else ""
            out.print(f"{state['instrument']}: {state['origin']}{stays}", soft_wrap=True)
        if states:
            out.print(f"`lightrig restore {file}` restores what was saved", soft_wrap=True)
    for error in left.unused:
        err.print(str(error), soft_wrap=True)


def _rows(testbed: Testbed) -> list[dict[str, Any]]:
    folder = machine_folder()
    places: list[MachineLocks | SharedFolder] = [MachineLocks(folder)]
    if testbed.lab_folder is not None:
        places.append(SharedFolder(testbed.lab_folder))
    rows = []
    for name in (*testbed.optical_switches, *testbed.servers, *testbed.instruments):
        spec = spec_of(testbed, name)
        keys = address_keys(spec)
        found = (place.holder(key) for place in places for key in sorted(keys))
        holder = next((owner for owner in found if owner is not None), None)
        rows.append(
            {
                "instrument": name,
                "address": spec.address or None,
                "leased": bool(keys),
                "holder": None if holder is None else dict(holder),
                "waiting": waiting_for(folder, keys) if keys else 0,
            }
        )
    return rows


def _use(row: Mapping[str, Any]) -> str:
    if not row["leased"]:
        return "has no address that is leased"
    use = "free" if row["holder"] is None else owner_text(row["holder"])
    return f"{use}; {row['waiting']} wait for it" if row["waiting"] else use
