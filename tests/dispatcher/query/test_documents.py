"""Tables of the query API, as kubectl prints them."""

from __future__ import annotations

from atoll.dispatcher.query import documents
from atoll.model.apiresource import AVAILABILITIES
from atoll.model.query import Available, QueueLeft, Stock


def test_a_row_of_each_member_has_its_amounts_and_queues() -> None:
    stocks = [Stock("nvidia.com/gpu", "6", "16", "3"), Stock("rdma/hca", "0", "4", "0")]
    queues = [QueueLeft("research"), QueueLeft("night")]
    east = documents.availability("team", "east", Available("is cordoned", stocks, queues, more=2))
    west = documents.availability("team", "west", Available())
    table = documents.table(documents.page(AVAILABILITIES, [east, west], "", 0), 0.0)
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Free", "On One Node", "Queues", "Message"]
    amounts = "6 of 16 nvidia.com/gpu, 0 of 4 rdma/hca"
    assert [each["cells"] for each in table["rows"]] == [
        ["east", amounts, "3, 0", "research,night,+2", "is cordoned"],
        ["west", "", "", "<none>", ""],
    ]
    assert table["rows"][0]["object"]["metadata"] == {"name": "east", "namespace": "team"}
