"""Moves running pods from nodes that are hot to nodes that are not: a process of its own, usable without a host.

`policy`, `evictable`, `figures` and `plan` decide and are pure; `sources` and `cycle` do the I/O.
"""
