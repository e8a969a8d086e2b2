"""Run the command line as `python -m atoll.cli`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `atollctl`; an installation without its packages names the extra that brings them."""
    try:
        from atoll.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "atoll":
            raise
        sys.exit(f"atollctl: the Python package {error.name} is missing; install atoll[cli]")
    run()


if __name__ == "__main__":
    main()
