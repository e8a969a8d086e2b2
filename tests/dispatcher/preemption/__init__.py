"""Victims: who is evicted for whom, dry runs in members, claims."""
