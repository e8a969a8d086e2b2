"""HyperNodes found out: from labels of nodes, from Kueue's Topology, from what a fabric manager says.

Pure: what was read is given, what should be is returned as domains, and `plan` says what to write. It
may import `atoll.model`; the process and the commands around it do the reading and writing.
"""
