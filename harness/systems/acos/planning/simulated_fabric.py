"""Selected topologies for `lightrig simulate`: each rank moves its own switches (section 4.4)."""

from lightrig.harness.workloads.fabrics import Options, Rates, Selected


def selected_topologies(options: Options) -> Selected:
    """Return the fabric of `acos:scale_out=400G,...`: a rank's links are of one topology."""
    found = Selected(Rates.of(options))
    options.end()
    return found
