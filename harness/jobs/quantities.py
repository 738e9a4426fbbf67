"""The quantities of jobs, in the order in which they are shown."""

from lightrig.harness.quantities.table import table

COLLECTIVES = "Collectives"
RECOVERY = "Traffic under reconfiguration"
SURVIVAL = "Jobs under faults of light"
RDMA = "RDMA"
DATAGRAMS = "Datagrams"

QUANTITIES = table(f"""
[{COLLECTIVES}]
collective.time  ns lower
    duration of one operation
collective.algorithm_bandwidth  bit/s higher
    size of an operation by its duration
collective.bus_bandwidth  bit/s higher
    rate on each link of a ring that explains the duration, as in nccl-tests
collective.fitted_bus_bandwidth  bit/s higher
    bus bandwidth of unlimited size, from a line through all sizes
collective.latency  ns lower
    duration of an operation of size zero, from a line through all sizes
collective.utilization  share higher aliases=collective.use
    bus bandwidth of the largest size as a share of the line rate
[{RECOVERY}]
recovery.survived  1 higher unjudged
    1 where every rank continued through the change, else 0
recovery.routed  ns lower title="routes set"
    from the command until the servers have routes over the new links
recovery.first_collective  ns lower title="first all-reduce"
    from the command until the first all-reduce that began after it is done
recovery.interruption  ns lower
    longest time between two all-reduces that ended
recovery.bus_bandwidth  bit/s higher none unjudged hidden
    bus bandwidth of one all-reduce around the change
[{SURVIVAL}]
survival.went_on  1 higher least unjudged
    1 where the job on a link went on by itself, with right results, after its light was cut
survival.stall  ns lower
    longest exchange of the job while the light was away and until it went on
survival.dark  ns none unjudged
    time without carrier at the port of the link where it was longest
survival.longest_cut  ns higher least
    longest cut that half of the trials survive
[{RDMA}]
rdma.latency  ns lower
    median latency of RDMA messages in one direction
rdma.latency_p99  ns lower
    99th percentile of the latency of RDMA messages in one direction
rdma.bandwidth  bit/s higher
    average bandwidth of RDMA over one link
rdma.utilization  share higher aliases=rdma.use
    bandwidth of RDMA over one link as a share of the line rate
rdma.alone  bit/s higher
    bandwidth of RDMA in one direction of a link while no other runs
rdma.concurrent_share  share higher
    bandwidth in one direction while all links run both ways, as a share of that alone
rdma.recovered  ns lower
    from the command until the first RDMA operation over a new link
[{DATAGRAMS}]
datagrams.alone  bit/s higher
    rate of data in datagrams in one direction of a link while no other runs
datagrams.concurrent_share  share higher
    rate in one direction while all links run both ways, as a share of that alone
""")
