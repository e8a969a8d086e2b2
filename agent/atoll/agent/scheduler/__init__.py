"""The gang scheduler of a member.

`room`, `gangs`, `holds`, `planner` and `status` are pure and import only `atoll.model`, `atoll.fit`, the cached
structs and conditions; `binder`, `reservations` and `loop` do the input and output.
"""
