"""Reservations: when a waiting workload can start, and which others may run there before it."""
