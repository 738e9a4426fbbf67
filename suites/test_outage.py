"""Interruption of RDMA when circuits change.

`test_reconfiguration.py` measures the outage that datagrams see, in the same events as the stages.
"""


def test_rdma_after_a_change(
    rdma, fabric, measure, bring_up, measure_rdma_recovery, transition, samples
):
    """RDMA is retried on a new link until it runs; the retry time is the resolution."""
    plans = transition.before, transition.after
    for index in range(min(samples, 5)):
        before, after = plans if index % 2 == 0 else plans[::-1]
        # A plan of packets alone has no links: then there is a way back only.
        if fabric.links(after) - fabric.links(before):
            bring_up(before, partly=True)
            link = min(fabric.links(after) - fabric.links(before))
            measure_rdma_recovery(rdma.pair(link), link, after)
    measure.judge("rdma.recovered")
