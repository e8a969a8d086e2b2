"""Faults that are played one at a time while jobs run: each module is one of them, with its workloads and its play.

They use the federation, the workloads and the judge of `tests.chaos`; `python -m tests.faults NAME` runs them.
"""
