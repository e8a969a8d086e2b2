"""Offline work on capacity that online pods request and do not use: a loop of `atoll-descheduler`, off by default.

`reclaim` and `pressure` decide and are pure; `loop` does the I/O. Cgroups of nodes belong to other agents.
"""
