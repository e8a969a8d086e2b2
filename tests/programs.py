"""What programs of Atoll print before they start anything: read in the test's own process, as imports take a second each."""

from __future__ import annotations

import contextlib
import importlib
import io

_MODULES = {"atoll-descheduler": "atoll.agent.descheduler", "atoll-web": "atoll.cli.web"}
"""Those whose module has another name than they have."""


def printed(program: str, *words: str) -> str:
    """The output of a program that ends by itself, such as `printed("atoll-agent", "--help")`.

    Raises:
        AssertionError: it fails; with what it prints.
    """
    module = importlib.import_module(f"{_MODULES.get(program) or program.replace('-', '.', 1)}.__main__")
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            module.main(list(words))
        except SystemExit as end:
            code = end.code
        else:
            code = None
    assert not code, f"{program} {' '.join(words)}: {code}\n{out.getvalue()}"
    return out.getvalue()
