"""Parts of admission: problems in words for their sender, patches, and checks of every pod template.

Pure functions on dicts that no schema has seen. It may import `atoll.api` and `atoll.model`; the rules of a workload
kind are with the kind, rules of queues with the webhook.
"""
