"""Nodes whose containers really run: a kubelet, a containerd and a network each, beside the simulated ones.

A node is one process tree in a mount and PID namespace of its own: its mounts and processes end with its first
process, whatever ended that. Outside are left a bridge and cgroups, which `leftovers` removes. It needs root and
Debian's packages (`requirements`).
"""
