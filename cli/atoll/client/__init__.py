"""Atoll for Python programs: submit, wait, logs, explain, cancel. The kubeconfig is the login.

    from atoll.client import Client, Job

    with Client(namespace="research") as atoll:
        job = atoll.submit(Job(command=["python", "train.py"], image="train:7", gpus=8, workers=4))
        state = atoll.wait(job, timeout=3600)

`AsyncClient` has the same methods to await. A job is one object on the host: any later process may `find` it again.
"""

from __future__ import annotations

from atoll.cli.submission import BadSubmission
from atoll.cli.submission import Submission as Job
from atoll.client.asynchronous import AsyncClient
from atoll.client.blocking import Client, JobExecutor
from atoll.client.display import Explanation
from atoll.client.submitted import State, Submitted, Vanished
from atoll.client.usage import Usage

__all__ = [
    "AsyncClient", "BadSubmission", "Client", "Explanation", "Job", "JobExecutor", "State", "Submitted", "Usage",
    "Vanished",
]  # fmt: skip
