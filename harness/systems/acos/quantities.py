"""The quantities that only ACOS records: what a change of topology between collectives takes."""

from lightrig.harness.quantities.table import table

QUANTITIES = table("""
[Topology selection] ns lower
selection.switched
    from a server's first command until the last of its switches has acknowledged
selection.links_up  title="links are up"
    from a server's first command until it has a link at every port
selection.begun  title="the collective begins"
    from the first server at the boundary until all members have joined the collective
selection.drained  title="connections are drained"
    from the end of a rank's last operation until its server's bytes are acknowledged
selection.bypassed  title="a failed server is bypassed"
    from the loss of a server's light until the others have done the first all-reduce
""")
