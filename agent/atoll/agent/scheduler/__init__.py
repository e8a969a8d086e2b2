"""The gang scheduler of a member.

`room`, `gangs`, `planner` and `status` are pure and import only `atoll.model`, `atoll.fit`, the cached structs and
conditions; `binder` and `loop` do the input and output.
"""
