"""Examples of pipelines: the manifest of Argo's step, and the operator with a class in the place of Airflow's."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import yaml

from atoll.admission.rules import Change
from atoll.client import State, Submitted
from atoll.kinds.job_array import KIND
from atoll.model.apiresource import JOB_ARRAYS

PIPELINES = Path(__file__).parents[2] / "examples" / "pipelines"


def test_the_array_of_the_workflow_is_admitted_and_ends_in_the_phases_that_argo_waits_for() -> None:
    [template] = yaml.safe_load((PIPELINES / "argo.yaml").read_text())["spec"]["templates"]
    step = template["resource"]
    assert KIND.admission().problems(Change(new=yaml.safe_load(step["manifest"]), namespace={})) == []
    ends = {}
    for field in ("successCondition", "failureCondition"):
        path, phase = step[field].split(" == ")
        assert path == "status.phase"
        ends[field] = str(KIND.finished({"phase": phase}))
    assert ends == {"successCondition": "Succeeded", "failureCondition": "Failed"}


class Operator:
    """As much of Airflow's BaseOperator as the example uses."""

    log = logging.getLogger("airflow")

    def __init__(self, *, task_id: str) -> None:
        self.task_id = task_id


class Atoll:
    """A client whose jobs end in one state."""

    end = State.SUCCEEDED

    def __init__(self, **_: Any) -> None:
        self.made = Submitted(JOB_ARRAYS, "a", "sweep", "u")

    def __enter__(self) -> Atoll:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, job: Any) -> Submitted:
        assert (job.image, job.array) == ("sim:2", "0-9")
        return self.made

    def wait(self, job: Submitted) -> State:
        return self.end

    def explain(self, job: Submitted) -> str:
        return "index 3 failed"

    cancelled: ClassVar[list[Submitted]] = []

    def cancel(self, job: Submitted) -> None:
        self.cancelled.append(job)


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Any:
    exceptions, sdk = ModuleType("airflow.exceptions"), ModuleType("airflow.sdk")
    exceptions.AirflowException = RuntimeError  # type: ignore[attr-defined]
    sdk.BaseOperator = Operator  # type: ignore[attr-defined]
    for module in (ModuleType("airflow"), exceptions, sdk):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    spec = importlib.util.spec_from_file_location("airflow_operator", PIPELINES / "airflow_operator.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    monkeypatch.setattr(found, "Client", Atoll)
    return found.AtollOperator(
        task_id="sweep", job={"image": "sim:2", "command": ["./sim.sh"], "array": "0-9"}, namespace="a"
    )


def test_the_operator_returns_the_reference_of_its_job(operator: Any) -> None:
    assert operator.execute({}) == "jobarrays.atoll.sh/sweep"


def test_the_operator_fails_with_the_explanation_of_its_job(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Atoll, "end", State.FAILED)
    with pytest.raises(RuntimeError, match="index 3 failed"):
        operator.execute({})


def test_the_operator_deletes_the_job_of_a_task_that_is_stopped(operator: Any) -> None:
    operator.on_kill()
    assert Atoll.cancelled == [], "none was submitted"
    operator.execute({})
    operator.on_kill()
    assert [each.name for each in Atoll.cancelled] == ["sweep"]
