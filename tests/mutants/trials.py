"""Tries tests on mutants, each in a fork of one process that has imported and collected everything already.

In the fork the functions of the mutated module get the code of the mutant; nothing is imported again, so that a mutant
costs little more than its tests. Which those are follows from one traced run: the ones that reach its statement, the
quickest first, as many as fit the time.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import io
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any, NoReturn

import hypothesis
import pytest

SECONDS = 10.0
"""CPU time of the tests of one mutant; what takes longer is stopped, and counts as noticed."""
BUDGET = 5.0
"""CPU time that these tests take without a mutant: where others use the machine too they are not stopped for that."""
_WALL = 600
"""Seconds after which the tests of one mutant are ended that wait for something."""
_EXAMPLES = 30
"""Of each property; without shrinking, since the first failure is enough."""
_OPTIONS = (
    "--noconftest", "-p", "tests.dispatcher.preemption.conftest", "-qq", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


class HarnessError(Exception):
    """The tests fail without a mutant, or could not be run."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What one test did to unchanged code."""

    test: str
    seconds: float
    """CPU time, without tracing."""
    lines: Mapping[str, frozenset[int]]
    """File -> lines that it reached."""


class Fork:
    """A child process that does something; what that returns can be read when it has ended."""

    def __init__(self, work: Callable[[], Any], *, cpu: float | None = None) -> None:
        # It stays open until `result` has read it.
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115
        self.pid = os.fork()
        if not self.pid:
            self._run(work, cpu)

    def _run(self, work: Callable[[], Any], cpu: float | None) -> NoReturn:
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            if cpu is not None:
                # Neither signal is caught: they end the process.
                signal.alarm(_WALL)
                signal.setitimer(signal.ITIMER_PROF, cpu)
            answer = work()
        except BaseException:
            answer = traceback.format_exc()
        self._answer.write(json.dumps(answer).encode())
        self._answer.flush()
        os._exit(0)

    def result(self) -> Any:
        """What `work` returned, None where it did not come to that; after the process has ended.

        Raises:
            HarnessError: it raised something itself.
        """
        with self._answer:
            self._answer.seek(0)
            text = self._answer.read()
        answer = json.loads(text) if text else None
        if isinstance(answer, str):
            raise HarnessError(answer)
        return answer


class Bench:
    """Tests that are collected, and what can be done with them: `survey` once, `attempt` for each mutant."""

    def __init__(self, items: Sequence[pytest.Item], folders: tuple[str, ...], watch: _Watch) -> None:
        self._items = {item.nodeid: item for item in items}
        self._folders = folders
        self._watch = watch
        self._functions = _functions_of(folders)
        gc.collect()
        # Forks share what is not written to.
        gc.freeze()

    def survey(self) -> list[Trace]:
        """Run all tests on unchanged code, and see how long each takes and, in another run, which lines it reaches.

        Raises:
            HarnessError: a test fails.
        """
        seconds, reached = (self._of_all(each) for each in (self._timed, _Tracer(self._folders).run))
        return [
            Trace(test, seconds[test], {path: frozenset(lines) for path, lines in files.items()})
            for test, files in reached.items()
        ]

    def _of_all(self, measure: Callable[[Callable[[], None]], Any]) -> dict[str, Any]:
        fork = Fork(lambda: self._survey(measure))
        os.waitpid(fork.pid, 0)
        answer = fork.result()
        if answer is None or answer["failed"]:
            raise HarnessError(f"without any mutant a test fails: {answer and answer['failed']}")
        found: dict[str, Any] = answer["found"]
        return found

    def attempt(self, path: str, source: str, tests: Sequence[str]) -> Fork:
        """Start tests with the functions of a file as this source has them.

        Its result is {"failed": the first test that fails, or nothing}.
        """
        return Fork(lambda: self._attempt(path, source, tests), cpu=SECONDS)

    def _survey(self, measure: Callable[[Callable[[], None]], Any]) -> dict[str, Any]:
        found = {test: measure(functools.partial(self._run, [test])) for test in self._items}
        return {"failed": self._watch.failed, "found": found}

    def _timed(self, work: Callable[[], None]) -> float:
        before = time.process_time()
        work()
        return time.process_time() - before

    def _attempt(self, path: str, source: str, tests: Sequence[str]) -> dict[str, Any]:
        for code in _codes_of(compile(source, path, "exec")):
            if code.co_qualname in self._functions[path]:
                self._functions[path][code.co_qualname].__code__ = code
        self._run(tests)
        return {"failed": self._watch.failed}

    def _run(self, tests: Sequence[str]) -> None:
        items = [self._items[test] for test in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._watch.failed:
                return


def with_bench(tests: Sequence[str], folders: Sequence[str], work: Callable[[Bench], int]) -> int:
    """Collect tests of what is in some folders, and do something with them; returns what that returns.

    Raises:
        HarnessError: they can't be collected.
    """
    watch = _Watch(tuple(folders), work)
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*tests, *_OPTIONS], plugins=[watch])
    if watch.answer is None:
        raise HarnessError(watch.failed or "the tests can't be collected")
    return watch.answer


class _Watch:
    """Makes properties brief, keeps the first test that fails, and hands the collected tests over."""

    def __init__(self, folders: tuple[str, ...], work: Callable[[Bench], int]) -> None:
        self._folders = folders
        self._work = work
        self.failed = ""
        #: what the work returned
        self.answer: int | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            case = getattr(item, "cls", None)
            if case is not None and isinstance(getattr(case, "settings", None), hypothesis.settings):
                case.settings = _brief(case.settings)
            test = getattr(item, "obj", None)
            known = getattr(test, "_hypothesis_internal_use_settings", None)
            if isinstance(known, hypothesis.settings):
                test._hypothesis_internal_use_settings = _brief(known)  # type: ignore[union-attr]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not self.failed:
            try:
                self.answer = self._work(Bench(session.items, self._folders, self))
            except Exception:
                # pytest would show it where nobody looks.
                self.failed = traceback.format_exc()
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or f"{report.nodeid}: {report.longrepr}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


class _Tracer:
    """Sees which lines of some folders something reaches."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders
        self._lines: dict[str, set[int] | None] = {}

    def run(self, work: Callable[[], None]) -> dict[str, list[int]]:
        self._lines = {}
        sys.settrace(self._enter)
        try:
            work()
        finally:
            sys.settrace(None)
        return {path: sorted(lines) for path, lines in self._lines.items() if lines}

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


def _functions_of(folders: tuple[str, ...]) -> dict[str, dict[str, FunctionType]]:
    """File -> qualified name -> function, of all modules in some folders that are imported."""
    found: dict[str, dict[str, FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(folders):
            found.setdefault(each.__code__.co_filename, {})[each.__code__.co_qualname] = each
    return found


def _codes_of(code: CodeType) -> Iterator[CodeType]:
    """The functions and methods that a module defines, not those inside them."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & inspect.CO_OPTIMIZED:
                yield each
            else:
                yield from _codes_of(each)


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
