"""The quantities that only MixNet records: all-to-alls over its plans, and failovers."""

from lightrig.harness.quantities.table import table

EXCHANGE = "All-to-all"
FAILOVER = "Failover"
TRAINING = "Training of experts"

QUANTITIES = table(f"""
[{EXCHANGE}]
exchange.links  1 none unjudged
    optical links of the plan that an all-to-all ran over
exchange.time  ns lower
    duration of one all-to-all
exchange.speedup  1 higher
    duration of an all-to-all over one plan by that over another
[{FAILOVER}]
failover.survived  1 higher unjudged
    1 where every rank continued after the failure, else 0
failover.noticed  ns lower title="detected"
    from the failure until it is detected
failover.rerouted  ns lower
    from the failure until packets take the links that are left
failover.replanned  ns lower
    time that planning without the failed component takes
failover.first_collective  ns lower
    from the failure until the first collective operation that began after it is done
[{TRAINING}]
experts.step  ns lower
    time of a training step
experts.exchanges  ns lower title="all-to-alls"
    time of all all-to-alls of a step, each from the last rank's beginning to its last end
experts.waited  ns lower title="waited for circuits"
    time that the all-to-alls of a step wait for circuits, each until its last rank has begun
experts.waited_by_cause  ns lower unjudged title="waited, by cause"
    part of the time that the all-to-alls of a step wait for circuits, by its condition `cause`
experts.optical  share none unjudged title="on circuits"
    share of the bytes between ranks that take circuits
experts.changes  1 none unjudged
    changes of circuits in a step that move any
experts.loss_off  1 lower unjudged title="losses off"
    greatest difference of a step's losses from those on a packet switch
experts.exchange_speedup  1 higher title="speedup of all-to-alls"
    time of a step's all-to-alls over one network by that over circuits that follow
experts.step_speedup  1 higher title="speedup of steps"
    time of a step over one network by that over circuits that follow
""")
