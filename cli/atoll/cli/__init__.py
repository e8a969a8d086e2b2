"""`atollctl`, also installed as `kubectl-atoll`: the federation from the command line.

It may import every layer; nothing imports it. Modules that are slow to import (kubernetes, pydantic, aiohttp) are
imported inside commands, so that `--help` and completion answer at once.
What leaves: tables for people, JSON and YAML for programs, errors in one line on stderr, exit codes 0, 1 (failed),
2 (usage).
"""
