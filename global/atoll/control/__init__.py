"""The host's controllers: workload → binding, binding → Work, reports → status, queues, clusters.

May import everything up to `atoll.delivery` (of it only the Work). One leader runs them all; each is a cache, a queue
of keys and a function that looks at one key and does missing steps.
"""
