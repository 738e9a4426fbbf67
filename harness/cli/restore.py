"""`lightrig restore`: put back what the switches held before a run that was killed."""

from harness.bench import Fabric, bind_switches
from harness.bench.keeping import FoundState, state_folder
from harness.cli.common import AsJson, File, lab, leased, load_testbed, out, print_json


def restore(file: File, as_json: AsJson = False) -> None:
    """Put back what the switches held before a run that was killed.

    Exit 0 if they hold it now, 3 if a switch did not answer or did not obey.
    """
    testbed = load_testbed(file)
    kept = FoundState(testbed.name, state_folder())
    found = lab(kept.read)
    if found is None:
        if as_json:
            print_json([])
        else:
            out.print(f"{testbed.name}: nothing to put back", markup=False)
        return
    with leased(testbed):
        bench = lab(lambda: bind_switches(testbed))
        try:
            fabric = Fabric(bench, kept)
            lab(fabric.remember_found)
            lab(fabric.restore)
        finally:
            bench.close()
    if as_json:
        print_json(
            [
                {"switch": name, "circuits": sorted(map(str, circuits))}
                for name, circuits in found.items()
            ]
        )
    else:
        for name, circuits in found.items():
            out.print(f"{name}: {len(circuits)} circuits as found", markup=False)
