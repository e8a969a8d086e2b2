"""The admission server: defaults and refuses what users send to the host, before it is stored.

It may import `atoll.api`, `atoll.model`, `atoll.admission`, `atoll.kinds`, `atoll.fit` and `atoll.kube`. It offers
the process `atoll-webhook`; the rules themselves (of each workload kind in `atoll.kinds`, here of queues and
bindings) are pure functions on dicts. It decides neither quota nor place, and asks the API server nothing while a
request waits.
"""
