"""Workloads between their minimum and all of their pods."""
