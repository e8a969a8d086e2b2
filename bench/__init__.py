"""Benchmarks: `python -m bench.NAME --json` runs one, `python -m bench` all of them.

Every throughput names the bound that was measured in the same run, on the same machine, and its ratio to it.
May import anything of Atoll; nothing imports this package but its tests.
"""
