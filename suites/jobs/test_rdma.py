"""RDMA on each link: latency of small messages, bandwidth of large ones."""


def test_each_link(rdma, fabric, measure, bring_up, measure_rdma, plan, samples):
    """Latency and bandwidth from one end of each link to the other, link by link."""
    bring_up(plan, partly=True)
    for _ in range(min(samples, 5)):
        for link in sorted(fabric.links(plan)):
            measure_rdma(rdma.pair(link), link, plan)
    measure.judge("rdma")
