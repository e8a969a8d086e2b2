"""Values without I/O: what every other layer reasons about.

Resource vectors, quantities, selectors, gangs, decisions, verdicts and topology trees live here. It imports only
`atoll.api`; it reads no clock, opens no connection and mutates nothing that it was given.
"""
