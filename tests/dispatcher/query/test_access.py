"""Who a request is from, and which names an answer may carry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.dispatcher.query.access import Front, NotAggregating, Unknown, User, identify, read_front
from atoll.dispatcher.query.documents import for_user
from atoll.model.query import Account, Change, ChangeKind, Named, Position

FRONT = Front("pem", ("front-proxy",), ("X-Remote-User",), ("X-Remote-Uid",), ("X-Remote-Group",), ("X-Remote-Extra-",))
PROXY = {"subject": ((("organizationName", "o"),), (("commonName", "front-proxy"),))}
HEADERS = [
    ("x-remote-user", "ada"),
    ("X-Remote-Uid", "7"),
    ("X-Remote-Group", "dev"),
    ("X-Remote-Group", "ops"),
    ("X-Remote-Extra-Acme.com%2fproject", "one"),
    ("X-Remote-Extra-Acme.com%2fproject", "two"),
]


def test_the_user_is_who_the_api_server_says() -> None:
    extra = (("acme.com/project", ("one", "two")),)
    assert identify(FRONT, PROXY, HEADERS) == User("ada", "7", ("dev", "ops"), extra)


@pytest.mark.parametrize(
    ("certificate", "headers", "said"),
    [
        pytest.param(None, HEADERS, "no client certificate", id="without a certificate"),
        pytest.param({}, HEADERS, "no client certificate", id="with one that was not verified"),
        pytest.param({"subject": ((("commonName", "agent"),),)}, HEADERS, "not that of", id="with another's"),
        pytest.param(PROXY, HEADERS[1:], "names no user", id="without a user"),
        pytest.param(PROXY, [("X-Remote-User", "")], "names no user", id="with an empty user"),
    ],
)
def test_what_did_not_come_by_the_api_server_is_left_alone(certificate: Any, headers: Any, said: str) -> None:
    with pytest.raises(Unknown, match=said):
        identify(FRONT, certificate, headers)


def test_any_name_will_do_where_none_is_demanded() -> None:
    front = read_front({"data": {"requestheader-client-ca-file": "pem"}})
    assert identify(front, {"subject": ((("commonName", "whoever"),),)}, HEADERS).name == "ada"


def test_headers_are_those_of_the_config_map() -> None:
    lists = {"username-headers": ["X-Who", "X-Who-Else"], "allowed-names": ["front-proxy"]}
    data = {f"requestheader-{key}": json.dumps(value) for key, value in lists.items()}
    front = read_front({"data": {"requestheader-client-ca-file": "pem", **data}})
    assert identify(front, PROXY, [*HEADERS, ("X-Who-Else", "bob")]).name == "bob"


@pytest.mark.parametrize(
    "data", [None, {}, {"requestheader-client-ca-file": "pem", "requestheader-allowed-names": "{"}]
)
def test_a_host_that_does_not_aggregate_is_refused(data: Any) -> None:
    with pytest.raises(NotAggregating):
        read_front({"data": data})


def test_workloads_of_other_namespaces_are_only_counted() -> None:
    both = [Named("theirs", "a"), Named("mine", "b")]
    account = Account(
        queue=Position("q", 4, 5, both, more=1),
        changes=[Change(ChangeKind.FINISH, "the end of 2 workloads", True, workloads=both)],
    )
    seen = for_user(account, "mine", lambda *_: None, everything=False)
    assert seen.queue == Position("q", 4, 5, [Named("mine", "b")], more=2)
    [change] = seen.changes
    assert (change.workloads, change.more) == ([Named("mine", "b")], 1)
