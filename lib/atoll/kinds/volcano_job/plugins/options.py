"""The arguments of job plugins, written as Go programs take their flags: `--port=22`, `--port 22`, `-no-root`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atoll.model import spelling

Value = str | int | bool


class BadArgument(ValueError):
    """An argument that the plugin can't take; the message says which and what would do."""


@dataclass(frozen=True, slots=True)
class Option:
    """One flag; its default says of what type it is."""

    name: str
    default: Value
    least: int = 1
    most: int = 65535


class Roles(tuple[str, ...]):
    """Roles of a framework's pods; each has an option that names its task, by default a task of that name."""

    @property
    def options(self) -> Sequence[Option]:
        """One for each."""
        return [Option(role, role) for role in self]

    def of(self, values: Mapping[str, Value]) -> dict[str, str]:
        """Task -> its role, as the options say."""
        return {str(values[role]): role for role in self}


def parse(options: Sequence[Option], arguments: Sequence[str]) -> dict[str, Value]:
    """Name -> value of every option, as the arguments or else the defaults say.

    Raises:
        BadArgument: an unknown flag, one without its value, a value of the wrong type.
    """
    known = {option.name: option for option in options}
    found: dict[str, Value] = {option.name: option.default for option in options}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-"):
            raise BadArgument(f"{argument!r} is no flag; write --name=value")
        name, equals, text = argument.lstrip("-").partition("=")
        option = known.get(name)
        if option is None:
            near = spelling.near(name, known)
            hint = f"; did you mean --{near[0]}?" if near else f"; it takes {_listed(options)}"
            raise BadArgument(f"--{name} is not one of its flags{hint}")
        if not equals and not isinstance(option.default, bool):
            if not rest:
                raise BadArgument(f"--{name} needs a value: --{name}=...")
            text = rest.pop(0)
        found[name] = _value(option, text if equals or not isinstance(option.default, bool) else "true")
    return found


def _value(option: Option, text: str) -> Value:
    if isinstance(option.default, bool):
        if text.lower() not in _BOOLEANS:
            raise BadArgument(f"--{option.name}={text}: use true or false")
        return _BOOLEANS[text.lower()]
    if isinstance(option.default, int):
        if not (text.isascii() and text.isdigit() and option.least <= int(text) <= option.most):
            raise BadArgument(f"--{option.name}={text}: use a whole number from {option.least} to {option.most}")
        return int(text)
    return text


_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def _listed(options: Sequence[Option]) -> str:
    return ", ".join(f"--{option.name}" for option in options) or "none"
