"""Preemption and reclaim: for which claimant, which victims, and the dry run in members before any eviction."""
