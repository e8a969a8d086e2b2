"""The tree of queues: limits, shares, standing, and what of it is used. Knows no workload and no member but by name."""
