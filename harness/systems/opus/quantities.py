"""The quantities that only Opus records; docs/training.md says how each is measured."""

from lightrig.harness.quantities.table import table

TRAINING = "Training"
CONTROL = "Opus control plane"
RAILS = "Training on photonic rails"

QUANTITIES = table(f"""
[{TRAINING}]
training.step  ns lower
    from the end of one training step to the end of the next
training.loss  1 none unjudged
    loss that one rank reports for one training step
training.loss_off_mesh  1 lower unjudged
    difference of a loss from that of the same step on a full mesh
train.step  ns lower
    mean over steps of a training script's step, from the end of one to the end of the next
train.exposed_wait  ns lower
    mean over steps of what the phases of a training script's step wait for their circuits
train.front_end  ns lower
    mean over steps and ranks of the time in operations that no rail carries
[{CONTROL}] lower
opus.rewiring  ns
    from the command to a switch until its new circuits are read back
opus.reconfiguration_time  ns aliases=opus.change
    T_reconfig: from the command to a switch until its links are up again
opus.reconfigurations  1
    changes of parallelism of one stage's circuits in one training step
opus.wait  ns
    wait of one operation of one rank for its topology
opus.waited  ns
    wait of the first operation of a phase for its circuits
opus.waited_a_step  ns
    mean over steps of what the phases of a step wait for their circuits
opus.wait_bound  ns aliases=opus.waited_at_most
    longest wait that T_reconfig, or max(0, T_reconfig - T_window), allows
opus.step_at_most  ns
    duration of a step on a full mesh plus the waits that are allowed
opus.control  share
    share of a step that control adds where switching takes no time, at most
opus.incident  1 sum unjudged
    1 for each retry, fallback or refused change of the controller
[{RAILS}] ns none unjudged hidden
rails.traffic
    duration of one rank's operation
rails.switch
    duration of one change of a switch
rails.light
    time without optical power at one egress
rails.carrier
    time without carrier at one NIC port
""")
