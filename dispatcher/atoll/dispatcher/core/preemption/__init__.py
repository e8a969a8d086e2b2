"""Victims: when others go for a workload that waits, who, and what members are asked before anybody is evicted."""
