"""Workloads that run with fewer pods than they ask for, or can: the sizes they may have, growing and shrinking."""
