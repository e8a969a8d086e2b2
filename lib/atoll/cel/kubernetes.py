"""Functions that Kubernetes adds: quantities, versions, addresses, URLs and formats."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface
from typing import Any
from urllib.parse import parse_qs, urlsplit

from atoll.cel.declarations import declare, per_length
from atoll.cel.numbers import whole
from atoll.cel.text import pattern
from atoll.cel.values import NONE, Format, Map, Optional, Quantity, Semver, Url, size
from atoll.model.quantity import parse

Address = IPv4Address | IPv6Address
Network = IPv4Interface | IPv6Interface
_ONCE, _TWICE = per_length(0.1, 0), per_length(0.2, 0)
_LONGEST_QUANTITY = 256
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)  # fmt: skip
_PART = re.compile(r"0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*", re.ASCII)


def _is(parse_text: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse_text(text)
        except ValueError:
            return False
        return True

    return check


def quantity(text: str) -> Quantity:
    """A quantity.

    Raises:
        ValueError: none, or a longer one than any that means something.
    """
    if len(text) > _LONGEST_QUANTITY:
        raise ValueError(f"the quantity has {len(text)} characters; the most is {_LONGEST_QUANTITY}")
    return Quantity(parse(text))


def _integer(value: Quantity) -> int:
    if value.value.denominator != 1:
        raise ValueError("the quantity is no integer")
    return whole(int(value.value))


def _plus(sign: int) -> Callable[[Quantity, Any], Quantity]:
    def plus(left: Quantity, right: Any) -> Quantity:
        return Quantity(left.value + sign * (right.value if isinstance(right, Quantity) else Fraction(right)))

    return plus


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def semver(text: str) -> Semver:
    """A semantic version; numbers are of 64 bits.

    Raises:
        ValueError: none.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:64]!r} is no version such as 1.2.3")
    parts = match.group(4).split(".") if match.group(4) else []
    if not all(map(_PART.fullmatch, parts)):
        raise ValueError(f"{text[:64]!r} has no valid pre-release")
    if any(len(each) > 20 and each.isdigit() for each in (*match.groups()[:3], *parts)):
        raise ValueError(f"{text[:64]!r} is beyond 64 bits")
    major, minor, patch = (int(each) for each in match.groups()[:3])
    before = tuple((False, int(each), "") if each.isdigit() else (True, 0, each) for each in parts)
    if max(major, minor, patch, *(each[1] for each in before)) >= 2**64:
        raise ValueError(f"{text[:64]!r} is beyond 64 bits")
    return Semver((major, minor, patch), before)


def _lenient_semver(text: str, lenient: bool) -> Semver:
    if not lenient:
        return semver(text)
    parts = text.removeprefix("v").split(".", 2)
    for at, part in enumerate(parts):
        if len(part) > 1:
            short = part.lstrip("0")
            parts[at] = short if short[:1].isdigit() else f"0{short}"
    if len(parts) < 3 and not {"+", "-"}.isdisjoint(parts[-1]):
        raise ValueError("a short version can't have more than numbers")
    return semver(".".join([*parts, "0", "0"][:3]))


def _ip(text: str) -> Address:
    address = ip_address(text)
    if isinstance(address, IPv6Address) and (address.ipv4_mapped or address.scope_id):
        raise ValueError(f"{text[:64]!r} is no plain address")
    return address


def _cidr(text: str) -> Network:
    address, slash, bits = text.partition("/")
    if not slash or not bits.isascii() or not bits.isdigit() or (bits[0] == "0" and bits != "0"):
        raise ValueError(f"{text[:64]!r} is no range such as 10.0.0.0/8")
    _ip(address)
    return ip_interface(text)


def _contains_ip(network: Network, address: Any) -> bool:
    return (_ip(address) if isinstance(address, str) else address) in network.network


def _contains_cidr(network: Network, other: Any) -> bool:
    inner = _cidr(other) if isinstance(other, str) else other
    return network.network.prefixlen <= inner.network.prefixlen and inner.network.network_address in network.network


def _cidr_cost(args: Any) -> int:
    parse_cost = math.ceil(len(args[1]) * 0.1) if isinstance(args[1], str) else 0
    return math.ceil(2 * size(args[0]) * 0.1) + parse_cost


def _url(text: str) -> Url:
    if not text or any(ord(each) < 0x20 or each == "\x7f" for each in text):
        raise ValueError("the URL is empty or has control characters")
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text, re.ASCII)
    if match is None and text[0] != "/":
        raise ValueError("the URL is not absolute")
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    if re.search(r"%(?![0-9A-Fa-f]{2})", parts.path) or re.search(r"[ <>\"{}|\\^`]", host):
        raise ValueError("the URL is not valid")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    port = host[len(name) + 1 :]
    if port and not (port.isascii() and port.isdigit()):
        raise ValueError("the port is no number")
    path = re.sub(
        r"[^A-Za-z0-9$&+,/:;=@!'()*._~%-]",
        lambda found: "".join(f"%{each:02X}" for each in found.group().encode()),
        parts.path,
    )
    return Url(text, parts.scheme, host, name.strip("[]"), port, path, parts.query)


def _query(url: Url) -> Map:
    return Map.of((key, tuple(values)) for key, values in parse_qs(url.query, keep_blank_values=True).items())


def _by_pattern(expression: str, longest: int) -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        if len(text) > longest:
            return f"must be no more than {longest} bytes"
        return None if pattern(f"^(?:{expression})$").search(text) else "does not have the format"

    return check


def _prefix(check: Callable[[str], str | None]) -> Callable[[str], str | None]:
    # A prefix may end with a dash: something follows it.
    return lambda text: check(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified(text: str) -> str | None:
    domain, slash, name = text.rpartition("/")
    if slash and (problem := _SUBDOMAIN(domain)):
        return problem
    return _by_pattern(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", 63)(name)


def _by_parsing(parse_text: Callable[[str], Any]) -> Callable[[str], str | None]:
    return lambda text: None if _is(parse_text)(text) else "does not have the format"


def _base64(text: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error


_LABEL = _by_pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63)
_SUBDOMAIN = _by_pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", 253)
_LABEL_1035 = _by_pattern(r"[a-z]([-a-z0-9]*[a-z0-9])?", 63)
_DATE = r"\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])"
_FORMATS = {
    each.name: each
    for each in (
        Format("dns1123Label", _LABEL, 8),
        Format("dns1123Subdomain", _SUBDOMAIN, 15),
        Format("dns1035Label", _LABEL_1035, 8),
        Format("qualifiedName", _qualified, 15),
        Format("dns1123LabelPrefix", _prefix(_LABEL), 8),
        Format("dns1123SubdomainPrefix", _prefix(_SUBDOMAIN), 15),
        Format("dns1035LabelPrefix", _prefix(_LABEL_1035), 8),
        Format("labelValue", _by_pattern(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", 63), 10),
        Format("uri", _by_parsing(_url), 100),
        Format("uuid", _by_pattern(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", 36), 20),
        Format("byte", _by_parsing(_base64), 20),
        Format("date", _by_pattern(_DATE, 10), 20),
        Format("datetime", _by_pattern(rf"{_DATE}[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", 64), 20),
    )
}


def _validate(format_: Format, text: str) -> Optional:
    problem = format_.check(text)
    return Optional(True, (problem,)) if problem else NONE


declare("quantity", "string", "Quantity", quantity, _ONCE)
declare("isQuantity", "string", "bool", _is(quantity), _ONCE)
declare("sign", "Quantity", "int", lambda value: _compare(value.value, 0))
declare(".asInteger", "Quantity", "int", _integer)
declare(".isInteger", "Quantity", "bool", lambda value: value.value.denominator == 1)
declare(".asApproximateFloat", "Quantity", "double", lambda value: float(value.value))
for _name, _sign in (("add", 1), ("sub", -1)):
    declare(f".{_name}", "Quantity, Quantity", "Quantity", _plus(_sign))
    declare(f".{_name}", "Quantity, int", "Quantity", _plus(_sign))
for _type in ("Quantity", "Semver"):
    declare(".isGreaterThan", f"{_type}, {_type}", "bool", lambda left, right: left > right)
    declare(".isLessThan", f"{_type}, {_type}", "bool", lambda left, right: left < right)
    declare(".compareTo", f"{_type}, {_type}", "int", _compare)
for _name, _run in (("semver", lambda parsed: parsed), ("isSemver", _is)):
    _result = "Semver" if _name == "semver" else "bool"
    declare(_name, "string", _result, _run(semver), _ONCE)
declare("semver", "string, bool", "Semver", _lenient_semver, _ONCE)
declare(
    "isSemver",
    "string, bool",
    "bool",
    lambda text, lenient: _is(lambda each: _lenient_semver(each, lenient))(text),
    _ONCE,
)
for _at, _name in enumerate(("major", "minor", "patch")):
    declare(f".{_name}", "Semver", "int", lambda version, at=_at: whole(version.numbers[at]))

declare("ip", "string", "IP", _ip, _ONCE)
declare("isIP", "string", "bool", _is(_ip), _ONCE)
declare("ip.isCanonical", "string", "bool", lambda text: str(_ip(text)) == text, _TWICE)
declare("string", "IP", "string", str)
declare(".family", "IP", "int", lambda address: address.version)
for _name, _run in (
    ("isUnspecified", lambda each: each.is_unspecified),
    ("isLoopback", lambda each: each.is_loopback),
    (
        "isLinkLocalMulticast",
        lambda each: each in ip_interface("224.0.0.0/24" if each.version == 4 else "ff02::/16").network,
    ),
    ("isLinkLocalUnicast", lambda each: each.is_link_local),
    (
        "isGlobalUnicast",
        lambda each: (
            not (each.is_unspecified or each.is_loopback or each.is_multicast or each.is_link_local)
            and str(each) != "255.255.255.255"
        ),
    ),
):
    declare(f".{_name}", "IP", "bool", _run)
declare("cidr", "string", "CIDR", _cidr, _ONCE)
declare("isCIDR", "string", "bool", _is(_cidr), _ONCE)
declare("string", "CIDR", "string", str)
declare(".ip", "CIDR", "IP", lambda network: network.ip)
declare(".prefixLength", "CIDR", "int", lambda network: network.network.prefixlen)
declare(".masked", "CIDR", "CIDR", lambda network: ip_interface(str(network.network)))
for _type in ("string", "IP"):
    declare(".containsIP", f"CIDR, {_type}", "bool", _contains_ip, _cidr_cost)
for _type in ("string", "CIDR"):
    declare(
        ".containsCIDR", f"CIDR, {_type}", "bool", _contains_cidr,
        lambda args: _cidr_cost(args) + math.ceil(size(args[0]) * 0.1) + 1,
    )  # fmt: skip

declare("url", "string", "URL", _url, _ONCE)
declare("isURL", "string", "bool", _is(_url))
for _name, _part in (
    ("getScheme", "scheme"), ("getHost", "host"), ("getHostname", "hostname"), ("getPort", "port"),
    ("getEscapedPath", "path"),
):  # fmt: skip
    declare(f".{_name}", "URL", "string", lambda url, part=_part: getattr(url, part))
declare(".getQuery", "URL", "map(string, list(string))", _query)

for _format in _FORMATS.values():
    declare(f"format.{_format.name}", "", "Format", lambda format_=_format: format_)
declare(
    "format.named", "string", "optional(Format)",
    lambda name: Optional(True, _FORMATS[name]) if name in _FORMATS else NONE,
)  # fmt: skip
declare(
    ".validate", "Format, string", "optional(list(string))", _validate,
    lambda args: math.ceil((1 + len(args[1])) * 0.1) * args[0].cost,
)  # fmt: skip
