"""The gang scheduler of a member.

`room`, `gangs` and `planner` are pure and import only `atoll.model`, `atoll.fit` and the cached structs; `binder`, `status`
and `loop` do the input and output.
"""
