"""A page is a frame, which is sent once, and parts, of which a stream sends the ones that change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jinja2
from markupsafe import Markup

from atoll.cli.web.world import World
from atoll.model.ages import age, duration

Json = dict[str, Any]

_LONGEST: Final = 600
"""Letters of a tenant's text on a page."""
_CUT: Final = "\x1e"
"""Between two parts in the output of a template."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it is now."""

    title: str
    path: str
    form: Json | None
    """Values of the filter, where the page has one; `template` names its file."""
    parts: list[str]
    live: bool = True
    """Whether a stream follows its changes."""


def whole(page: Page, *, leave: bool) -> str:
    """The page with its frame; `leave`: with a way to log out."""
    return str(_templates.get_template("frame.html").render(page=page, body=Markup("".join(page.parts)), leave=leave))


def error(status: int, text: str) -> str:
    """A page that says why there is no other."""
    return str(_templates.get_template("error.html").render(status=status, text=text.strip()))


def form(text: str) -> str:
    """A form for a token, with the reason why it is asked for."""
    return str(_templates.get_template("error.html").render(status="Your token", text=text, paste=True))


def rendered(
    world: World,
    title: str,
    path: str,
    template: str,
    form: Json | None = None,
    *,
    live: bool = True,
    **context: Any,
) -> Page:
    """The page of a template.

    Args:
        world: its user's objects.
        title: of the page.
        path: of its address.
        template: its file.
        form: values of its filter, and `template`.
        live: whether a stream follows its changes.
        context: for the template.
    """
    text: str = _templates.get_template(template).render(
        **context, unseen=world.unseen, title=title, path=path, cut=_CUT
    )
    return Page(title, path, form, text.split(_CUT), live)


def _clip(text: object) -> str:
    words = str(text)
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


_templates = jinja2.Environment(
    loader=jinja2.PackageLoader("atoll.cli.web"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= {"age": age, "duration": duration, "clip": _clip}
