"""The admission server: defaults and refuses what users send to the host, before it is stored.

It may import `atoll.api`, `atoll.model`, `atoll.kinds`, `atoll.fit` and `atoll.kube`. What leaves is the process
`atoll-webhook`; the rules themselves (`jobs`, `queues`, `bindings`) are pure functions on dicts. It decides neither
quota nor place, and asks the API server nothing while a request waits.
"""
