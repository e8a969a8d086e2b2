"""Admission policies on a real API server on which no webhook runs: who may write what, administrators included."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atoll import install
from atoll.install import policies, roles
from atoll.install.credentials import ensure_account
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local.cluster import ClusterHandle
from atoll.model import keys
from atoll.model.apiresource import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    API_SERVICES,
    BATCH_JOBS,
    BINDINGS,
    CAPACITIES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    QUEUES,
    VALIDATING_WEBHOOKS,
    WORKS,
    ApiResource,
)
from tests.integration.federation import batch_job, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

Json = dict[str, Any]
EXECUTION = keys.execution_namespace("alpha")
LED = ("lab-a", "lab-b", "lab-a1")


@dataclass
class Host:
    """A prepared host, seen by everybody who may come."""

    admin: ApiServer
    control: ApiServer
    dispatcher: ApiServer
    agent: ApiServer
    """Of member alpha."""
    user: ApiServer
    """May write bindings and Jobs, and nothing more."""
    lead: ApiServer
    """May create queues, and change the queues of `LED`."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(bare_host: ClusterHandle, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    directory: Path = tmp_path_factory.mktemp("policies")
    async with await bare_host.connect() as admin:
        at = await install.endpoint(bare_host.kubeconfig)
        address = {"url": "https://127.0.0.1:1"}
        await install.init(admin, at, out=directory, webhook_client_config=address, enable=["default"], force=True)
        # No webhook runs: policies hold all the same.
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            await admin.delete(resource, keys.WEBHOOKS)
        await admin.create(NAMESPACES, {"metadata": {"name": EXECUTION}})

        async def account(name: str, namespace: str, grants: tuple[roles.Grant, ...]) -> ApiServer:
            await ensure_account(admin, name, namespace)
            await install.ensure_rights(admin, name, (namespace, name), grants)
            token, _ = await install.issue_token(admin, name, namespace)
            install.write_kubeconfig(directory / f"{name}.kubeconfig", at, name, token)
            return await ApiServer.from_kubeconfig(directory / f"{name}.kubeconfig")

        verbs = ("get", "create", "patch", "update")
        everything = roles.Grant(
            None, tuple(roles.Rule(each.group, each.plural, verbs) for each in (BINDINGS, BATCH_JOBS, WORKS))
        )
        leading = roles.Grant(
            None,
            (
                roles.Rule(QUEUES.group, QUEUES.plural, ("get", "create")),
                roles.Rule(QUEUES.group, QUEUES.plural, ("patch", "update"), names=LED),
            ),
        )
        async with (
            await ApiServer.from_kubeconfig(install.kubeconfig_of(directory, "control")) as control,
            await ApiServer.from_kubeconfig(install.kubeconfig_of(directory, "dispatcher")) as dispatcher,
            await account("atoll-agent", EXECUTION, roles.agent_on_host("alpha")) as agent,
            await account("somebody", "default", (everything,)) as user,
            await account("lead", "default", (leading,)) as lead,
        ):
            made = Host(admin, control, dispatcher, agent, user, lead)
            await until(lambda: _enforced(made), what="the API server enforces the policies")
            yield made


async def _enforced(host: Host) -> bool:
    """All policies are: they come one by one, some time after they were written."""
    probes: list[Callable[[], Awaitable[Json]]] = [
        lambda: host.admin.create(CAPACITIES, capacity("probe", "default")),
        lambda: host.admin.create(WORKS, work("probe")),
        lambda: host.admin.create(BINDINGS, binding("probe", clusters=[{"name": "a"}])),
    ]
    for probe, resource, where in zip(
        probes, (CAPACITIES, WORKS, BINDINGS), ("default", EXECUTION, "default"), strict=True
    ):
        try:
            await probe()
        except errors.ApiError as error:
            if "atoll-" not in error.message:
                raise
        else:
            await host.admin.delete(resource, "probe", where)
            return False
    await host.admin.create(BATCH_JOBS, {**taken("probe"), "metadata": {"name": "probe", "namespace": "default"}})
    try:
        await host.admin.merge_patch(BATCH_JOBS, "probe", {"spec": {"suspend": False}}, "default")
    except errors.Forbidden:
        return True
    finally:
        await host.admin.delete(BATCH_JOBS, "probe", "default")
    return False


def head(resource: ApiResource, name: str, namespace: str, annotations: Json | None = None) -> Json:
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def unique() -> str:
    return f"n{uuid.uuid4().hex[:8]}"


def binding(name: str, *, annotations: Json | None = None, **spec: Any) -> Json:
    """A binding of Atoll as control makes it."""
    ours = {keys.GANG: "{}", keys.EPOCH: "0", **(annotations or {})}
    resource = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "namespace": "default"}
    content = {"resource": resource, "suspension": {"scheduling": True}, **spec}
    return {**head(BINDINGS, name, "default", ours), "spec": content}


def work(name: str, annotations: Json | None = None) -> Json:
    ours = {keys.BINDING_UID: "u", keys.EPOCH: "1"} if annotations is None else annotations
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
    made = {**head(WORKS, name, EXECUTION, ours), "spec": {"workload": {"manifests": [manifest]}}}
    made["metadata"]["finalizers"] = [keys.WORK_FINALIZER]
    return made


def capacity(name: str, namespace: str = EXECUTION) -> Json:
    spec = {"cluster": "alpha", "root": "root", "objects": 1, "generation": 1}
    return {**head(CAPACITIES, name, namespace), "spec": spec}


def taken(name: str) -> Json:
    """A Job that Atoll took over and suspended."""
    return batch_job(name, suspend=True, managedBy=keys.CONTROLLER)


def annotate(key: str, value: str | None) -> Json:
    return {"metadata": {"annotations": {key: value}}}


BROKEN = {"metadata": {"annotations": {keys.BREAK_GLASS: "the dispatcher is lost"}}}

FORGED = [
    pytest.param(annotate(keys.EPOCH, "7"), "by hand", id="another epoch"),
    pytest.param(annotate(keys.EPOCH, None), "by hand", id="no epoch"),
    pytest.param(annotate(keys.DECISION, "{}"), "by hand", id="a decision"),
    pytest.param({"spec": {"clusters": [{"name": "alpha"}]}}, "spec.clusters", id="clusters"),
    pytest.param({"spec": {"suspension": {"scheduling": False}}}, "spec.suspension", id="scheduling resumed"),
    pytest.param({"spec": {"suspension": {"dispatching": True}}}, "spec.suspension", id="dispatching suspended"),
    pytest.param({"spec": {"suspension": None}}, "spec.suspension", id="no suspension"),
]


def queue(name: str, parent: str | None) -> Json:
    head = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": name}}
    return {**head, "spec": {"weight": 1, **({} if parent is None else {"parent": parent})}}


@pytest_asyncio.fixture(loop_scope="module")
async def lab(host: Host) -> AsyncIterator[Host]:
    """Queues lab-a, lab-b and lab-c below lab, and other beside it."""
    tree = {"lab": None, "other": "root", "lab-a": "lab", "lab-b": "lab", "lab-c": "lab"}
    for name, parent in tree.items():
        await host.admin.create(QUEUES, queue(name, parent))
    yield host
    for name in (*tree, "lab-a1"):
        with contextlib.suppress(errors.NotFound):
            await host.admin.delete(QUEUES, name)


async def parents(api: ApiServer, name: str, parent: str | None) -> None:
    await api.merge_patch(QUEUES, name, {"spec": {"parent": parent}})


@pytest.mark.parametrize("parent", [None, "", "root", "other", "lab-b"])
async def test_a_right_to_queues_of_a_subtree_takes_none_out_of_it(lab: Host, parent: str | None) -> None:
    named = parent or "root"
    with pytest.raises(errors.Forbidden, match=f"queue lab-a: to go from below lab to below {named} needs the right"):
        await parents(lab.lead, "lab-a", parent)
    await lab.lead.merge_patch(QUEUES, "lab-a", {"spec": {"weight": 3, "parent": "lab"}})
    await parents(lab.admin, "lab-a", parent)


async def test_a_queue_moves_by_rights_to_its_old_and_its_new_parent(lab: Host) -> None:
    await lab.lead.create(QUEUES, queue("lab-a1", "lab-a"))
    for parent in ("lab", "lab-c", "root"):
        with pytest.raises(errors.Forbidden, match=f"to go from below lab-a to below {parent}"):
            await parents(lab.lead, "lab-a1", parent)
    await parents(lab.lead, "lab-a1", "lab-b")
    await parents(lab.lead, "lab-a1", "lab-a")


@pytest.mark.parametrize("parent", [None, "", "root", "lab", "other"])
async def test_a_queue_is_made_below_another_by_the_right_to_that_one(lab: Host, parent: str | None) -> None:
    name = unique()
    with pytest.raises(errors.Forbidden, match=f"queue {name}: to be made below {parent or 'root'} needs the right"):
        await lab.lead.create(QUEUES, queue(name, parent))
    await lab.admin.create(QUEUES, queue(name, parent))
    await lab.admin.delete(QUEUES, name)


async def test_the_expressions_fit_the_types(host: Host) -> None:
    async def checked() -> list[Json] | None:
        found = await host.admin.list(ADMISSION_POLICIES)
        done = all("typeChecking" in (each.get("status") or {}) for each in found)
        return found if done and len(found) == len(policies.POLICIES) else None

    for each in await until(checked, what="the policies are type checked"):
        warnings = each["status"]["typeChecking"].get("expressionWarnings")
        assert not warnings, each["metadata"]["name"]


@pytest.mark.parametrize(("patch", "about"), FORGED)
@pytest.mark.parametrize("who", ["admin", "user", "control"])
async def test_only_the_dispatcher_writes_decisions(host: Host, who: str, patch: Json, about: str) -> None:
    name = unique()
    await host.control.create(BINDINGS, binding(name))
    with pytest.raises(errors.Forbidden, match=about) as refused:
        await getattr(host, who).merge_patch(BINDINGS, name, patch, "default")
    assert "atollctl" in refused.value.message
    await host.dispatcher.merge_patch(BINDINGS, name, patch, "default")


@pytest.mark.parametrize("who", ["admin", "user"])
async def test_only_atoll_says_which_copies_stay(host: Host, who: str) -> None:
    name = unique()
    await host.control.create(BINDINGS, binding(name))
    task = {"fromCluster": "alpha", "reason": "Mine", "producer": "me"}
    patch = {"spec": {"gracefulEvictionTasks": [task]}}
    with pytest.raises(errors.Forbidden, match="gracefulEvictionTasks"):
        await getattr(host, who).merge_patch(BINDINGS, name, patch, "default")
    await host.dispatcher.merge_patch(BINDINGS, name, patch, "default")
    await host.control.merge_patch(BINDINGS, name, {"spec": {"gracefulEvictionTasks": None}}, "default")


async def test_the_gang_is_what_control_read_from_the_workload(host: Host) -> None:
    name = unique()
    await host.control.create(BINDINGS, binding(name))
    for key in (keys.GANG, keys.ACTION):
        with pytest.raises(errors.Forbidden, match="change the workload instead"):
            await host.admin.merge_patch(BINDINGS, name, annotate(key, "x"), "default")
        await host.control.merge_patch(BINDINGS, name, annotate(key, "x"), "default")


@pytest.mark.parametrize(
    ("made", "about"),
    [
        pytest.param({"clusters": [{"name": "alpha"}]}, "begins undecided", id="with clusters"),
        pytest.param({"annotations": {keys.EPOCH: "3"}}, "begins undecided", id="at another epoch"),
        pytest.param({"annotations": {keys.DECISION: "{}"}}, "begins undecided", id="with a decision"),
        pytest.param({"suspension": {"scheduling": False}}, "begins with spec.suspension", id="not suspended"),
    ],
)
async def test_a_binding_begins_undecided_whoever_makes_it(host: Host, made: Json, about: str) -> None:
    with pytest.raises(errors.Forbidden, match=about):
        await host.control.create(BINDINGS, binding(unique(), **made))
    with pytest.raises(errors.Forbidden, match=r"only atoll-control|begins undecided"):
        await host.admin.create(BINDINGS, binding(unique(), **made))


async def test_a_binding_of_another_scheduler_is_not_hindered(host: Host) -> None:
    name = unique()
    foreign = binding(name)
    del foreign["metadata"]["annotations"], foreign["spec"]["suspension"]
    await host.user.create(BINDINGS, {**foreign, "spec": {**foreign["spec"], "clusters": [{"name": "alpha"}]}})
    await host.user.merge_patch(BINDINGS, name, {"spec": {"clusters": [{"name": "beta"}]}}, "default")
    await host.user.merge_patch(BINDINGS, name, {"spec": {"suspension": {"dispatching": True}}}, "default")
    plain = work(unique(), annotations={})
    await host.user.create(WORKS, plain)
    await host.user.merge_patch(WORKS, plain["metadata"]["name"], {"spec": {"suspendDispatching": True}}, EXECUTION)


async def test_what_decides_nothing_may_be_changed_by_hand(host: Host) -> None:
    name = unique()
    await host.control.create(BINDINGS, binding(name))
    await host.user.merge_patch(BINDINGS, name, {"metadata": {"labels": {"team": "a"}}}, "default")
    await host.user.merge_patch(BINDINGS, name, annotate("note", "x"), "default")


async def test_an_administrator_breaks_the_glass_once_per_reason(host: Host) -> None:
    name = unique()
    await host.control.create(BINDINGS, binding(name))
    there = {"spec": {"clusters": [{"name": "alpha"}]}}
    await host.admin.merge_patch(BINDINGS, name, {**BROKEN, **there}, "default")
    with pytest.raises(errors.Forbidden, match="break-glass"):
        await host.admin.merge_patch(BINDINGS, name, {**BROKEN, "spec": {"clusters": []}}, "default")
    again = annotate(keys.BREAK_GLASS, "still lost")
    await host.admin.merge_patch(BINDINGS, name, {**again, "spec": {"clusters": []}}, "default")


async def test_no_other_user_breaks_the_glass(host: Host) -> None:
    name = unique()
    await host.control.create(BINDINGS, binding(name))
    with pytest.raises(errors.Forbidden, match="break-glass"):
        await host.user.merge_patch(BINDINGS, name, {**BROKEN, "spec": {"clusters": [{"name": "a"}]}}, "default")


# -- Works and capacity ------------------------------------------------------------------------------------------------


async def test_only_control_makes_and_changes_works(host: Host) -> None:
    name = unique()
    with pytest.raises(errors.Forbidden, match="submit a workload instead"):
        await host.admin.create(WORKS, work(name))
    await host.control.create(WORKS, work(name))
    for api in (host.admin, host.agent, host.user):
        for patch in (
            {"spec": {"suspendDispatching": True}},
            annotate(keys.EPOCH, "9"),
            annotate(keys.BINDING_UID, None),
        ):
            with pytest.raises(errors.Forbidden, match="change the workload instead"):
                await api.merge_patch(WORKS, name, patch, EXECUTION)
    with pytest.raises(errors.Forbidden, match="unjoin --force"):
        await host.admin.merge_patch(WORKS, name, {"metadata": {"finalizers": None}}, EXECUTION)
    await host.control.merge_patch(WORKS, name, {"spec": {"suspendDispatching": True}}, EXECUTION)


async def test_an_agent_reports_and_lets_go_and_does_nothing_else(host: Host) -> None:
    name = unique()
    await host.control.create(WORKS, work(name))
    status: Json = {"status": {"manifestStatuses": []}}
    with pytest.raises(errors.Forbidden, match="only the agent of this member reports"):
        await host.admin.merge_patch(WORKS, name, status, EXECUTION, subresource="status")
    await host.agent.merge_patch(WORKS, name, status, EXECUTION, subresource="status")
    for patch in ({"metadata": {"labels": {"a": "b"}}}, annotate("note", "x")):
        with pytest.raises(errors.Forbidden, match="finalizers of a Work and nothing else"):
            await host.agent.merge_patch(WORKS, name, patch, EXECUTION)
    await host.agent.merge_patch(WORKS, name, {"metadata": {"finalizers": None}}, EXECUTION)


async def test_a_report_changes_nothing_but_the_status(host: Host) -> None:
    """The policies leave out such writes of the agent and of control: the API server keeps all else as it was."""
    name = unique()
    forged = {"metadata": {"annotations": {keys.EPOCH: "9"}, "labels": {"a": "b"}, "finalizers": None}}
    made = [await host.control.create(BINDINGS, binding(name)), await host.control.create(WORKS, work(name))]
    for api, resource, before, spec, status in (
        (host.control, BINDINGS, made[0], {"clusters": [{"name": "a"}]}, {"schedulerObservedGeneration": 1}),
        (host.agent, WORKS, made[1], {"suspendDispatching": True}, {"manifestStatuses": []}),
    ):
        namespace = before["metadata"]["namespace"]
        patch: Json = {**forged, "spec": spec, "status": status}
        after = await api.merge_patch(resource, name, patch, namespace, subresource="status")
        assert (after["status"], after["spec"]) == (status, before["spec"])
        for field in ("annotations", "labels", "finalizers", "generation"):
            assert after["metadata"].get(field) == before["metadata"].get(field), field


async def test_only_a_member_says_what_room_it_has(host: Host) -> None:
    name = unique()
    with pytest.raises(errors.Forbidden, match="only the agent of a member"):
        await host.admin.create(CAPACITIES, capacity(name))
    await host.agent.apply(CAPACITIES, capacity(name), field_manager="atoll-agent")
    with pytest.raises(errors.Forbidden, match="cordon nodes in the member"):
        await host.admin.merge_patch(CAPACITIES, name, {"spec": {"generation": 2}}, EXECUTION)
    await host.admin.merge_patch(CAPACITIES, name, {**BROKEN, "spec": {"generation": 2}}, EXECUTION)


# -- batch Jobs --------------------------------------------------------------------------------------------------------


async def test_what_atoll_suspended_is_not_started_by_hand_without_the_webhook(host: Host) -> None:
    name = unique()
    await host.admin.create(BATCH_JOBS, {**taken(name), "metadata": {"name": name, "namespace": "default"}})
    start = {"spec": {"suspend": False}}
    for api in (host.admin, host.user):
        with pytest.raises(errors.Forbidden, match="starts by itself when its queue has room"):
            await api.merge_patch(BATCH_JOBS, name, start, "default")
    await host.user.merge_patch(BATCH_JOBS, name, annotate(keys.HOLD, "true"), "default")
    with pytest.raises(errors.Forbidden, match=f"atollctl job release {name}"):
        await host.user.merge_patch(BATCH_JOBS, name, start, "default")
    await host.control.json_patch(
        BATCH_JOBS, name, [{"op": "replace", "path": "/spec/suspend", "value": False}], "default"
    )
    await host.user.merge_patch(BATCH_JOBS, name, {"spec": {"suspend": True}}, "default")


async def test_a_job_that_runs_stays_in_its_queue_without_the_webhook(host: Host) -> None:
    name = unique()

    def into(queue: str, **more: str) -> Json:
        return {"metadata": {"labels": {keys.QUEUE_LABEL: queue, **more}}}

    obj = taken(name)
    await host.admin.create(
        BATCH_JOBS, {**obj, "metadata": {"name": name, "namespace": "default", **into("a")["metadata"]}}
    )
    await host.user.merge_patch(BATCH_JOBS, name, into("b"), "default")
    await host.control.json_patch(
        BATCH_JOBS, name, [{"op": "replace", "path": "/spec/suspend", "value": False}], "default"
    )
    for patch in (into("c"), into("b", **{keys.KUEUE_QUEUE_LABEL: "c"}), {"metadata": {"labels": None}}):
        with pytest.raises(errors.Forbidden, match=f"Job {name}: stays in queue b"):
            await host.user.merge_patch(BATCH_JOBS, name, patch, "default")
    await host.user.merge_patch(BATCH_JOBS, name, annotate(keys.QUEUE_ANNOTATION, "c"), "default")
    await host.admin.merge_patch(
        BATCH_JOBS, name, {"metadata": {**into("c")["metadata"], **BROKEN["metadata"]}}, "default"
    )


async def test_jobs_that_are_not_atolls_start_as_their_users_like(host: Host) -> None:
    name, elsewhere = unique(), unique()
    await host.admin.create(NAMESPACES, {"metadata": {"name": elsewhere}})
    plain = {**batch_job(name, suspend=True), "metadata": {"name": name, "namespace": "default"}}
    await host.user.create(BATCH_JOBS, plain)
    await host.user.merge_patch(BATCH_JOBS, name, {"spec": {"suspend": False}}, "default")
    await host.user.create(BATCH_JOBS, {**taken(name), "metadata": {"name": name, "namespace": elsewhere}})
    await host.user.merge_patch(BATCH_JOBS, name, {"spec": {"suspend": False}}, elsewhere)


async def test_the_dispatcher_registers_its_own_api_and_no_other(host: Host) -> None:
    def service(group: str) -> Json:
        spec = {"group": group, "version": "v1alpha1", "groupPriorityMinimum": 1, "versionPriority": 1}
        head = {"apiVersion": API_SERVICES.api_version, "kind": API_SERVICES.kind}
        return {**head, "metadata": {"name": f"v1alpha1.{group}"}, "spec": spec}

    async def refused() -> bool:
        try:
            await host.dispatcher.create(API_SERVICES, service("other.example"))
        except errors.Forbidden as error:
            # Once it is enforced, not RBAC but the policy says so.
            return "registers its own API and no other" in error.message
        await host.admin.delete(API_SERVICES, "v1alpha1.other.example")
        return False

    await until(refused, what="another API is refused")
    await host.dispatcher.apply(API_SERVICES, service("query.atoll.sh"), field_manager="test")
    await host.dispatcher.delete(API_SERVICES, keys.QUERY_API)
    with pytest.raises(errors.Forbidden):
        await host.dispatcher.delete(API_SERVICES, "v1.batch")


async def test_policies_go_and_come_back(host: Host) -> None:
    await install.remove_policies(host.admin)
    assert not await host.admin.list(ADMISSION_POLICIES)
    assert not await host.admin.list(ADMISSION_POLICY_BINDINGS)
    await install.remove_policies(host.admin)
    await install.ensure_policies(host.admin)
    versions = [each["metadata"]["resourceVersion"] for each in await host.admin.list(ADMISSION_POLICY_BINDINGS)]
    await install.ensure_policies(host.admin)
    again = [each["metadata"]["resourceVersion"] for each in await host.admin.list(ADMISSION_POLICY_BINDINGS)]
    assert versions == again
    assert len(again) == len(policies.POLICIES)
