"""An Airflow operator that runs a job, or an array of jobs, through Atoll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.exceptions import AirflowException
from airflow.sdk import BaseOperator

from atoll.client import Client, Job, State, Submitted


class AtollOperator(BaseOperator):
    """Submits, waits, and fails as the job fails; a task that is stopped deletes its job.

    Args:
        job: fields of `atoll.client.Job`, such as `{"image": "train:7", "command": ["python", "train.py"], "gpus": 8}`.
        namespace: None for the kubeconfig's.
        kubeconfig: a file; None for $KUBECONFIG or the account of the worker's pod.
    """

    template_fields: Sequence[str] = ("job", "namespace")

    def __init__(
        self, *, job: Mapping[str, Any], namespace: str | None = None, kubeconfig: str | None = None, **others: Any
    ) -> None:
        super().__init__(**others)
        self.job, self.namespace, self.kubeconfig = dict(job), namespace, kubeconfig
        self._running: Submitted | None = None

    def execute(self, context: Any) -> str:
        """Run it; the result is its reference, such as `jobs.batch.volcano.sh/train`."""
        with self._client() as atoll:
            self._running = atoll.submit(Job(**self.job))
            self.log.info("submitted %s", self._running.ref)
            state = atoll.wait(self._running)
            if state is not State.SUCCEEDED:
                raise AirflowException(f"{self._running.ref} has failed:\n{atoll.explain(self._running)}")
            return self._running.ref

    def on_kill(self) -> None:
        """Delete the job of a task that is stopped."""
        if self._running is not None:
            with self._client() as atoll:
                atoll.cancel(self._running)

    def _client(self) -> Client:
        return Client(namespace=self.namespace, kubeconfig=self.kubeconfig)
