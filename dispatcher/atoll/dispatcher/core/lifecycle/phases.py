"""Which phase may follow which: the one table."""

from __future__ import annotations

from atoll.dispatcher.core.backlog.binding import Binding
from atoll.model.decision import Phase

NEXT: dict[Phase, tuple[Phase, ...]] = {
    Phase.SUSPENDED: (Phase.RESERVING, Phase.DISPATCHED),
    Phase.RESERVING: (Phase.DISPATCHED, Phase.EVICTING),
    Phase.DISPATCHED: (Phase.EVICTING,),
    Phase.EVICTING: (Phase.LEAVING,),
    Phase.LEAVING: (),
    Phase.FINISHED: (),
}
"""Which phases may be decided on in which. Any phase may be seen: another leader may have decided."""


class IllegalTransition(Exception):
    """A phase was decided that does not follow the one before: a defect of the core. The text tells the story."""

    def __init__(self, binding: Binding, phase: Phase) -> None:
        story = "; ".join(f"{line.at} {line.phase} {line.reason} {line.text}" for line in binding.view.decision.story)
        super().__init__(f"{binding.view.namespace}/{binding.view.name}: {binding.phase} -> {phase}; story: {story}")


def follow(binding: Binding, phase: Phase) -> None:
    """Decide the next phase of a binding.

    Raises:
        IllegalTransition: it does not follow the one that it is in.
    """
    if phase not in NEXT[binding.phase]:
        raise IllegalTransition(binding, phase)
    binding.phase = phase
