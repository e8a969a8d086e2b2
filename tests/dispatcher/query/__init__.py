"""The query API."""
