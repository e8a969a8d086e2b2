"""Workload kinds."""
