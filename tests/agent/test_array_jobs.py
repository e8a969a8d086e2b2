"""The Job of an index, as the agent makes it."""

from __future__ import annotations

from atoll.agent.jobs.arrays import child_of
from atoll.cli.submission import Submission, manifest


def test_containers_read_their_index_and_its_argument() -> None:
    words = [f"seed {each}" for each in range(5)]
    array = manifest(Submission(command=["run"], image="i", name="sweep", array="0-2,10-11", arguments=words))
    array["metadata"]["uid"] = "u"
    made = child_of(array, 10, 0)
    [container] = made["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert {each["name"]: each["value"] for each in container["env"]} == {
        "JOB_COMPLETION_INDEX": "10",
        "ATOLL_ARRAY_INDEX": "10",
        "ATOLL_ARRAY_ARGUMENT": "seed 3",
    }
    assert made["metadata"]["name"] == "sweep-10"
