"""Quotas, guarantees and shares of queues and namespaces."""
