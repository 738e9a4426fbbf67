"""Jobs: collectives, training and RDMA over circuits, and what faults do to them."""
