"""The chaos suite: a stream of gangs over three members while processes, leases, connections and API servers fail.

`plan` says what is submitted and what its users do to it, `faults` what goes wrong, both by a seed; `drive` is the
users, `player` is the misfortune. `record` reads the audit logs, `checks` judges them: pure functions, tested on
doctored logs. `python -m tests.chaos` runs it.
"""
