"""Runs tests on mutants, each in a fork of a process that has imported everything else already.

A mutated module exists in the memory of one fork. Which tests a mutant is tried with follows from one traced run: those
that reach its statement, the quickest first, as many as fit the time.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn

import hypothesis
import pytest

SECONDS = 10.0
"""CPU time of the tests of one mutant."""
_WALL = 120
"""Seconds after which a fork is ended that waits for something."""
_SURVEY_WALL = 900
_EXAMPLES = 30
"""Of each property; without shrinking, since the first failure is enough."""
_ELSEWHERE = (
    "atoll.api",
    "atoll.fit",
    "atoll.kinds",
    "atoll.kube",
    "atoll.model",
    "highspy",
    "hypothesis.stateful",
    "numpy",
    "prometheus_client",
)
"""What the tests import besides the mutated packages."""
_OPTIONS = ("--noconftest", "-q", "-x", "-p", "no:cacheprovider", "-o", "timeout=0", "--import-mode=importlib")


class HarnessError(Exception):
    """The tests fail without a mutant, or could not be run."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What one test did to unchanged code."""

    test: str
    seconds: float
    """CPU time, with tracing."""
    lines: Mapping[str, frozenset[int]]
    """File -> lines that it reached."""


def prepare(package: str) -> None:
    """Import what every fork needs, and nothing of the package that is mutated.

    Raises:
        HarnessError: something of it is imported already.
    """
    sys.dont_write_bytecode = True
    for name in _ELSEWHERE:
        importlib.import_module(name)
    profile = _brief(hypothesis.settings())
    hypothesis.settings.register_profile("mutants", profile)
    hypothesis.settings.load_profile("mutants")
    early = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    if early:
        raise HarnessError(f"imported before the forks: {', '.join(early)}")


class Fork:
    """A child process that does something; what that returns can be read when it has ended."""

    def __init__(self, work: Callable[[], Any], *, cpu: float | None = None, wall: int = _WALL) -> None:
        # It stays open until `result` has read it.
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115
        self.pid = os.fork()
        if not self.pid:
            self._run(work, cpu, wall)

    def _run(self, work: Callable[[], Any], cpu: float | None, wall: int) -> NoReturn:
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            # Neither signal is caught: they end the process.
            signal.alarm(wall)
            if cpu is not None:
                signal.setitimer(signal.ITIMER_PROF, cpu)
            self._answer.write(json.dumps(work()).encode())
            self._answer.flush()
        finally:
            os._exit(0)

    def result(self) -> Any:
        """What `work` returned, None where it did not come to that; after the process has ended."""
        with self._answer:
            self._answer.seek(0)
            text = self._answer.read()
        return json.loads(text) if text else None


def survey(tests: Sequence[str], folders: Sequence[Path]) -> list[Trace]:
    """Run all tests on unchanged code, and see which lines each reaches.

    Raises:
        HarnessError: a test fails.
    """
    fork = Fork(lambda: _survey(tests, [str(each) for each in folders]), wall=_SURVEY_WALL)
    os.waitpid(fork.pid, 0)
    answer = fork.result()
    if answer is None or answer["code"]:
        raise HarnessError(f"without any mutant the tests fail: {answer and answer['failed']}")
    return [
        Trace(test, seconds, {path: frozenset(lines) for path, lines in reached.items()})
        for test, seconds, reached in answer["traces"]
    ]


def _survey(tests: Sequence[str], folders: Sequence[str]) -> dict[str, Any]:
    plugin = _Survey(folders)
    code = pytest.main([*tests, *_OPTIONS], plugins=[plugin])
    return {"code": int(code), "failed": plugin.failed, "traces": plugin.traces}


def attempt(module: str, path: Path, source: str, tests: Sequence[str]) -> Fork:
    """Start the tests with a module whose source is another one. The result is (exit code of pytest, failed test)."""
    return Fork(lambda: _attempt(module, path, source, tests), cpu=SECONDS)


def _attempt(module: str, path: Path, source: str, tests: Sequence[str]) -> tuple[int, str]:
    sys.meta_path.insert(0, _Finder(module, str(path), source))
    plugin = _Chosen(tests)
    code = pytest.main([*dict.fromkeys(test.partition("::")[0] for test in tests), *_OPTIONS], plugins=[plugin])
    return int(code), plugin.failed


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, with another source."""

    def __init__(self, module: str, path: str, source: str) -> None:
        self._module, self._path = module, path
        self._code = compile(source, path, "exec")

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=_Loader(name, self._path, self._code))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class _Plugin:
    """Makes properties brief, and keeps the first test that fails."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            case = getattr(item, "cls", None)
            if case is not None and isinstance(getattr(case, "settings", None), hypothesis.settings):
                case.settings = _brief(case.settings)
            test = getattr(item, "obj", None)
            known = getattr(test, "_hypothesis_internal_use_settings", None)
            if isinstance(known, hypothesis.settings):
                test._hypothesis_internal_use_settings = _brief(known)  # type: ignore[union-attr]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


class _Chosen(_Plugin):
    """Runs some tests, in the order in which they are named."""

    def __init__(self, tests: Sequence[str]) -> None:
        super().__init__()
        self._tests = tests

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self._tests if test in found]
        super().pytest_collection_modifyitems(items)


class _Survey(_Plugin):
    """Sees which lines of some folders each test reaches."""

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__()
        self._folders = tuple(folders)
        self._lines: dict[str, set[int] | None] = {}
        self.traces: list[tuple[str, float, dict[str, list[int]]]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._lines = {}
        before = time.process_time()
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            reached = {path: sorted(lines) for path, lines in self._lines.items() if lines}
            self.traces.append((item.nodeid, time.process_time() - before, reached))

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        path = frame.f_code.co_filename
        if path not in self._lines:
            self._lines[path] = set() if path.startswith(self._folders) else None
        lines = self._lines[path]
        if lines is None:
            return None
        add = lines.add
        add(frame.f_lineno)

        def line(frame: FrameType, event: str, argument: object) -> Any:
            add(frame.f_lineno)
            return line

        return line


def _brief(settings: hypothesis.settings) -> hypothesis.settings:
    """The same examples in every run, and not more of them than show most faults."""
    return hypothesis.settings(
        settings,
        max_examples=min(settings.max_examples, _EXAMPLES),
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
