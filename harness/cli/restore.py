"""`lightrig restore`: restore the circuits of before a run that was killed."""

from lightrig.harness.bench import Fabric, bind_switches
from lightrig.harness.bench.saved_state import SavedState, state_folder
from lightrig.harness.cli.common import AsJson, File, load_testbed, print_json
from lightrig.harness.cli.lab import lab, leased
from lightrig.harness.cli.terminal import out


def restore(file: File, as_json: AsJson = False) -> None:
    """Restore the circuits that the switches had before a run that was killed.

    Exit 0 if they are restored, 3 if a switch did not answer or refused.
    """
    testbed = load_testbed(file)
    saved = SavedState(testbed.name, state_folder())
    found = lab(saved.read)
    if found is None:
        if as_json:
            print_json([])
        else:
            out.print(f"{testbed.name}: nothing to restore", markup=False)
        return
    with leased(testbed):
        bench = lab(lambda: bind_switches(testbed))
        try:
            fabric = Fabric(bench, saved)
            lab(fabric.save_initial_state)
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
            out.print(f"{name}: {len(circuits)} circuits restored", markup=False)
