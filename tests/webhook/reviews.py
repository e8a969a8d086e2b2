"""Reviews as an API server sends them."""

from __future__ import annotations

from typing import Any

from atoll.kube.config import Connection
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import NAMESPACES, QUEUES
from atoll.model.objects import decode_meta
from atoll.webhook import queues, reviews
from tests.webhook.builders import Json

PATHS = [
    *("/mutate/jobs", "/mutate/batch-jobs", "/mutate/queues", "/mutate/bindings"),
    *("/validate/jobs", "/validate/batch-jobs", "/validate/queues", "/validate/hypernodes"),
    *("/validate/policies", "/validate/cluster-policies"),
]


async def nobody() -> None:
    return None


def make_answers() -> reviews.Reviews:
    """Answers from empty caches that are connected to nothing."""
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    return reviews.Reviews(Reflector(api, QUEUES, queues.decode), Reflector(api, NAMESPACES, decode_meta))


def review(obj: Any = None, old: Any = None, operation: str = "CREATE", **request: Any) -> Json:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u1",
            "operation": operation,
            "namespace": "team-a",
            "object": obj,
            "oldObject": old,
            **request,
        },
    }
