"""Which members a workload may go to."""
