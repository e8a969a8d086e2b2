"""The host in virtual time: bindings as its API server has them, and the dispatcher's shell around the core.

Writes are guarded as the real patches are: by epoch, and by generation where they change the spec. Changes are
collected for a moment, then the core decides once on all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from atoll.dispatcher import flavoring
from atoll.dispatcher.core import (
    Ask,
    BindingGone,
    BindingSet,
    BindingView,
    Command,
    Commit,
    Dispatch,
    Dispatcher,
    Event,
    Evict,
    Pass,
    Refused,
    Resize,
)
from atoll.dispatcher.core.log import Begin
from atoll.kube.recording import LogWriter
from atoll.model.flavors import NONE, Flavors
from atoll.sim.member import Delays
from atoll.sim.timeline import Timeline


class Host:
    """Bindings, and the core that decides on them."""

    def __init__(
        self,
        timeline: Timeline,
        core: Dispatcher,
        delays: Delays,
        *,
        written: Callable[[Command, BindingView], None],
        decided: Callable[[], None],
        flavors: Flavors = NONE,
        recorder: LogWriter[Begin, Event, Command] | None = None,
        verify: bool = False,
    ) -> None:
        """Begin empty.

        Args:
            timeline: the time.
            core: fresh.
            delays: how long decisions take to be made and written.
            written: called with every command that took effect and the binding before it.
            decided: called after every pass.
            flavors: of resources.
            recorder: of what the core is told and answers.
            verify: check the core's invariants after every event; slow.
        """
        self.core = core
        #: UID -> binding as the API server has it
        self.views: dict[str, BindingView] = {}
        #: command kind -> how many took effect
        self.writes: dict[str, int] = {}
        self.refused = 0
        self.passes = 0
        self._timeline, self._delays = timeline, delays
        self._written, self._decided = written, decided
        self._flavors = flavors
        self._recorder, self._verify = recorder, verify
        self._told: list[Event] = []
        self._pass_due = False
        #: the moment of the earliest look that is on its way
        self._look_at = float("inf")

    def tell(self, event: Event) -> None:
        """A watch says something; the core hears it with the next pass."""
        self._told.append(flavoring.event(event, self._flavors))
        if not self._pass_due:
            self._pass_due = True
            self._timeline.after(self._delays.coalesce, self._pass)

    def see(self, view: BindingView) -> None:
        """The API server has the binding like this now."""
        self.views[view.uid] = view
        self.tell(BindingSet(view))

    def change(self, uid: str, **fields: Any) -> None:
        """Somebody else than the core changes a binding; nothing happens to one that is gone."""
        if (view := self.views.get(uid)) is not None:
            self.see(dataclasses.replace(view, **fields))

    def forget(self, uid: str) -> None:
        """The binding is deleted."""
        if self.views.pop(uid, None) is not None:
            self.tell(BindingGone(uid))

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        self._pass_due = False
        told, self._told = self._told, []
        for event in told:
            self._handle(event)
        self.passes += 1
        commands = self._handle(Pass(self._timeline.now))
        self._decided()
        if commands:
            self._timeline.after(self._delays.write, lambda: self._write(commands))
        self._look_again()

    def _handle(self, event: Event) -> list[Command]:
        commands = self.core.handle(event)
        if self._recorder is not None:
            self._recorder.record(event, commands)
        if self._verify:
            self.core.check()
        return commands

    def _look_again(self) -> None:
        due = self.core.next_deadline
        if due is None or (self._look_at <= due and self._look_at > self._timeline.now):
            return
        # Never at the same moment again: a deadline that is past is looked at a pass later, as in the shell.
        self._look_at = max(due, self._timeline.now + self._delays.coalesce)
        self._timeline.at(self._look_at, self._look, look=True)

    def _look(self) -> None:
        due = self.core.next_deadline
        if self._pass_due or due is None:
            return
        if due > self._timeline.now:
            self._look_again()
            return
        self._pass()

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write(self, commands: list[Command]) -> None:
        for command in commands:
            view = self.views.get(command.uid)
            stale = view is None or view.epoch != command.epoch
            if view is None or stale or (not command.only_tells and view.generation != command.generation):
                self.refused += 1
                self.tell(Refused(command.uid, command.decision.epoch, command.generation))
                continue
            kind = type(command).__name__
            self.writes[kind] = self.writes.get(kind, 0) + 1
            after = written(view, command)
            if command.only_tells:
                # The echo of a reason is known to the core; there are too many of them to play each.
                self.views[view.uid] = after
                if view.decision.question is not None:
                    self._written(command, view)
                continue
            self.see(after)
            self._written(command, view)


def written(view: BindingView, command: Command) -> BindingView:
    """The binding as the API server has it once the command's patch was applied."""
    if command.only_tells:
        return dataclasses.replace(view, decision=command.decision)
    if isinstance(command, Ask):
        return dataclasses.replace(view, decision=command.decision, epoch=command.decision.epoch, reserved={})
    parts = view.parts if isinstance(command, Commit) else ()
    if isinstance(command, Dispatch | Resize):
        parts = tuple((part.cluster, tuple(count for _, count in part.tasks)) for part in command.parts)
    return dataclasses.replace(
        view,
        decision=command.decision,
        epoch=command.decision.epoch,
        generation=view.generation + 1,
        parts=parts,
        suspended=isinstance(command, Evict),
        reserved=view.reserved if command.decision.epoch == view.epoch else {},
    )
