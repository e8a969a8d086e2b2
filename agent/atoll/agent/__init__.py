"""Processes of one member: Volcano Jobs become pods, gangs become bindings, free amounts become ClusterCapacity.

One process per member. May import everything up to `atoll.delivery`; only the simulator and the command line import
it. What leaves: pods, bindings and statuses in the member; capacity and a lease in its execution namespace on the
host.
"""
