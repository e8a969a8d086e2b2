"""A whole federation on one machine: real etcd, API servers, controller managers and kwok.

What lives here: finding or building the binaries, the layout of members, starting and stopping a
federation, and the detached supervisor that owns one for the command line.
May import every layer below (api to sim); only the command line, tests and benchmarks import it.
What leaves: URLs and kubeconfig files of a host and its members.
"""
