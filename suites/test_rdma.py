"""What does RDMA get from each link: latency of small messages, bandwidth of large ones?"""


def test_each_link(rdma, fabric, measure, plan, samples):
    """From one end of every link to the other, one after another."""
    measure.bring_up(plan)
    for _ in range(min(samples, 5)):
        for link in sorted(fabric.links(plan)):
            measure.rdma(rdma.pair(link), link, plan)
    measure.judge("rdma")
