"""Run the command line as `python -m atoll.cli`."""

from __future__ import annotations

from atoll.cli.app import main

if __name__ == "__main__":
    main()
