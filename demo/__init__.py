"""`python -m demo`: a slice of a real trace through a whole federation on this machine, checked against the audit logs.

May import atoll.local and what is below it. Nothing imports this package but its tests.
"""
