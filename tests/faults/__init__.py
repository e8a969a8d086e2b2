"""Faults on the way between Atoll and real API servers.

`wire` and `request` read HTTP/1.1 and Kubernetes' URLs, `stream` alters watches, `proxy` is what tests put in front of
an API server, `proxies` puts one in front of each connection of each process of a federation. `leadership` measures
what becomes of a leader under faults. Nothing here knows what Atoll does; any client can go through.
"""
