"""The Volcano Job controller of a member.

`state` and `pods` are pure functions on dicts, `controller` feeds them from the cache and writes their results.
"""
