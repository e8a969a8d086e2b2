"""Where a workload goes now: the members that its policy and its queue allow, ranked, and the placement there."""
