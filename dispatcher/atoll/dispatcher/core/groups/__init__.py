"""Groups of workloads: gangs that start together, and neighbours that keep to the same members or apart."""
