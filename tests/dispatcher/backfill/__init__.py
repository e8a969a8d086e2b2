"""Reservations for blocked workloads, and what may pass them."""
