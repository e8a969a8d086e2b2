"""Everything that talks to an API server: transport, reflector, work queue, lease election, events, conditions.

It may import `atoll.api`, `atoll.model`, `atoll.kinds` and `atoll.fit`; whoever needs a Kubernetes object goes
through it. Time comes from the event loop (`loop.time()`) and, where an object needs a date, from a clock that the
caller can replace.
"""
