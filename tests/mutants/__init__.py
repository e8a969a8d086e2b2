"""Do the tests notice when the dispatcher's decisions are wrong? Small faults are made in them, one at a time.

`python -m tests.mutants --count 300 --seed 7`; the tree itself is never edited.
"""
