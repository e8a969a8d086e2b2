"""`atoll-topology`: the HyperNodes of one cluster, looked after; it needs nothing else of Atoll.

`findings`, `health`, `observed` and `discovery` are pure: objects in, what to say or write out. `operator` is the kopf
operator around them: it watches, judges applied objects, and writes status. It may import `atoll.model` and
`atoll.kube`.
"""
