"""Decides when and where workloads run.

`core/` and `split/` are pure: events in, commands out, no I/O, no clock. The shell around them (`shell.py`) feeds
them from watches and writes their decisions. May import everything up to `atoll.delivery`; the pure parts only
`api`, `model`, `kinds` and `fit`.
"""
