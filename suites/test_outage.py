"""How long is traffic interrupted when circuits change, in each direction of each link?"""


def test_outage_between_plans(measure, transition, samples):
    """A thousand numbered datagrams a second in each direction say when it went, and came back."""
    measure.bring_up(transition.before)
    for index in range(samples):
        measure.outage(transition.before if index % 2 else transition.after)
    measure.judge("outage")


def test_rdma_after_a_change(rdma, fabric, measure, transition, samples):
    """RDMA is tried on a new link until it runs; how finely that is known, its retries say."""
    plans = transition.before, transition.after
    measure.bring_up(plans[0])
    for index in range(min(samples, 5)):
        before, after = plans if index % 2 == 0 else plans[::-1]
        link = min(fabric.links(after) - fabric.links(before))
        measure.rdma_recovery(rdma.pair(link), link, after)
    measure.judge("rdma.recovered")
