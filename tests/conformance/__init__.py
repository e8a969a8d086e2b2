"""Expected results of the upstream programs, replayed against ours; `python -m tests.conformance SUITE FILE...`."""
