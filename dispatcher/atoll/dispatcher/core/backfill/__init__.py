"""Reservations: from when on a workload that waits has room, and which others may run before it there."""
