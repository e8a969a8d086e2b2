"""Admission policies: who may write a decision. The API server itself enforces them, whether the webhook runs or not.

RBAC can't tell the fields of an object apart, and an administrator may do everything; a decision that is written by
hand, however, breaks what the dispatcher has charged and what members have reserved. So these policies hold for
administrators too. The way around them is deliberate and leaves a trace: annotation `atoll.sh/break-glass` with the
reason, set or changed in the very request, by a user who may do everything on that resource (verb `break-glass`).

Objects that are not Atoll's are none of these policies' business: bindings and Works of a Karmada beside it pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY
from atoll.install.refusal import Refused
from atoll.kinds import KINDS, Kind
from atoll.kinds.metadata import QUEUE_PLACES
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import certificates, keys, namespaces
from atoll.model.apiresource import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    API_SERVICES,
    BINDINGS,
    CAPACITIES,
    COMMANDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    QUEUES,
    SIGNING_REQUESTS,
    VALIDATING_WEBHOOKS,
    WORKS,
    ApiResource,
)
from atoll.model.namespaces import system_rule

Json = dict[str, Any]

_ACCOUNT: Final = f"system:serviceaccount:{keys.SYSTEM_NAMESPACE}:atoll-"
_BY_CONTROL: Final = f'request.userInfo.username == "{_ACCOUNT}control"'
_BY_DISPATCHER: Final = f'request.userInfo.username == "{_ACCOUNT}dispatcher"'
_BY_MEMBER: Final = (
    f'request.namespace.startsWith("{keys.EXECUTION_PREFIX}")'
    ' && request.userInfo.username == "system:serviceaccount:" + request.namespace + ":atoll-agent"'
)
_ON_CREATE: Final = 'request.operation == "CREATE"'
_OF_STATUS: Final = 'request.?subResource.orValue("") == "status"'
_EMERGENCY: Final = (
    f"in an emergency, an administrator sets annotation {keys.BREAK_GLASS} to the reason in the same request"
)
_DECISION_IDS: Final = (
    keys.BINDING_UID,
    keys.EPOCH,
    keys.BINDING_NAME,
    keys.BINDING_NAMESPACE,
    keys.CARRIED,
    keys.QUESTION,
)


def _annotation(holder: str, key: str) -> str:
    """CEL: the annotation's value, empty where there is none."""
    return f'{holder}.metadata.?annotations[?"{key}"].orValue("")'


def _same_annotations(names: Iterable[str]) -> str:
    return " && ".join(f"{_annotation('object', name)} == {_annotation('oldObject', name)}" for name in names)


def _broken_glass() -> str:
    """CEL: an administrator says in this request why the policy is not to hold.

    The right is asked for in all namespaces: who gives himself every verb in his own one has not got it.
    """
    reason, before = _annotation("object", keys.BREAK_GLASS), _annotation("oldObject", keys.BREAK_GLASS)
    right = "authorizer.group(request.resource.group).resource(request.resource.resource)"
    return f'{reason} != "" && ({_ON_CREATE} || {reason} != {before}) && {right}.check("break-glass").allowed()'


def _any_of(names: Iterable[str]) -> str:
    """CEL: the object has, or had, one of these annotations."""
    found = [f'{_annotation("object", name)} != ""' for name in names]
    before = [f'{_annotation("oldObject", name)} != ""' for name in names]
    return f"{' || '.join(found)} || (!({_ON_CREATE}) && ({' || '.join(before)}))"


def _kept_by_us(holder: str) -> str:
    """CEL: a binding has the finalizer by which control knows its own."""
    return f'("{keys.BINDING_FINALIZER}" in {holder}.metadata.?finalizers.orValue([]))'


def _rule(expression: str, message: str, *, shown: str = "") -> Json:
    """A validation; `shown` is a CEL expression for a message that depends on the object."""
    rule = {"expression": f"variables.breakGlass || ({expression})", "message": message, "reason": "Forbidden"}
    return {**rule, "messageExpression": shown} if shown else rule


def _policy(
    name: str,
    resources: ApiResource | tuple[ApiResource, ...],
    operations: list[str],
    conditions: Mapping[str, str],
    validations: list[Json],
    *,
    subresources: tuple[str, ...] = (),
    opted_in: bool = False,
    scope: str = "Namespaced",
) -> tuple[Json, Json]:
    """A policy and its binding, both of this name."""
    about = resources if isinstance(resources, tuple) else (resources,)
    selector = namespaces.selector() if opted_in else {}
    constraints = {
        "matchPolicy": "Equivalent",
        "namespaceSelector": selector,
        "objectSelector": {},
        "resourceRules": [
            {
                "apiGroups": [each.group],
                "apiVersions": [each.version],
                "resources": [each.plural, *(f"{each.plural}/{sub}" for sub in subresources)],
                "operations": operations,
                "scope": scope,
            }
            for each in about
        ],
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": constraints,
        "matchConditions": [{"name": name, "expression": expression} for name, expression in conditions.items()],
        "variables": [{"name": "breakGlass", "expression": _broken_glass()}],
        "validations": validations,
    }
    metadata = {"name": name, "labels": MANAGED_BY}
    return (
        {
            "apiVersion": ADMISSION_POLICIES.api_version,
            "kind": ADMISSION_POLICIES.kind,
            "metadata": metadata,
            "spec": spec,
        },
        {
            "apiVersion": ADMISSION_POLICY_BINDINGS.api_version,
            "kind": ADMISSION_POLICY_BINDINGS.kind,
            "metadata": metadata,
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    )


_WHO_DECIDES: Final = (
    "only atoll-dispatcher decides where this workload runs; use `atollctl job hold` or `job release` on it, or"
    f" `atollctl unjoin` for a member; {_EMERGENCY}"
)

_LEFT_TO_US: Final = f'object.spec.?schedulerName.orValue("") == "{keys.SCHEDULER_NAME}"'
_OUR_CONDITIONS: Final = 'each.type in ["Bound", "Running", "Finished", "Released"]'


def _conditions(holder: str) -> str:
    return f"{holder}.?status.?conditions.orValue([]).filter(each, {_OUR_CONDITIONS})"


_BEGINS: Final = (
    f'({_annotation("oldObject", keys.EPOCH)} == "" && {_annotation("object", keys.EPOCH)} == "0"'
    " && object.spec.?clusters.orValue([]).size() == 0)"
)
"""CEL: the webhook suspends a binding that a Karmada leaves to Atoll."""

DECISIONS_ON_KARMADA: Final = _policy(
    "atoll-decisions",
    BINDINGS,
    ["CREATE", "UPDATE"],
    {
        "not-the-dispatcher": f"!({_BY_DISPATCHER})",
        # Karmada writes the rest of it. A binding that was scheduled before it was left to Atoll has no owner.
        "ours": f"{_LEFT_TO_US} && ({_annotation('object', keys.EPOCH)} != ''"
        f" || (!({_ON_CREATE}) && {_annotation('oldObject', keys.EPOCH)} != ''))",
    },
    [
        _rule(
            f'!({_ON_CREATE}) || ({_annotation("object", keys.DECISION)} == ""'
            f' && {_annotation("object", keys.EPOCH)} == "0" && object.spec.?clusters.orValue([]).size() == 0'
            " && object.spec.?suspension.?scheduling.orValue(false))",
            f"a binding begins undecided, at epoch 0, without spec.clusters, suspended; {_WHO_DECIDES}",
        ),
        _rule(
            f"{_ON_CREATE} || {_BEGINS} || ({_same_annotations((keys.DECISION, keys.EPOCH))})",
            f"annotations {keys.DECISION} and {keys.EPOCH} can't be changed by hand: {_WHO_DECIDES}",
        ),
        _rule(
            f"{_ON_CREATE} || object.spec.?clusters == oldObject.spec.?clusters",
            f"spec.clusters can't be changed by others, Karmada's failover included (leave its feature gate Failover"
            f" off): {_WHO_DECIDES}",
        ),
        _rule(
            f"{_ON_CREATE} || {_BEGINS}"
            " || object.spec.?suspension.?scheduling == oldObject.spec.?suspension.?scheduling",
            f"spec.suspension.scheduling can't be changed by hand: {_WHO_DECIDES}",
        ),
        _rule(
            f"{_ON_CREATE} || {_BY_CONTROL} || {_same_annotations((keys.GANG,))}",
            f"annotation {keys.GANG} is written by atoll-control from the workload: change the workload instead;"
            f" {_EMERGENCY}",
        ),
        _rule(
            f"!({_OF_STATUS}) || {_BY_CONTROL} || {_conditions('object')} == {_conditions('oldObject')}",
            "only atoll-control says that a workload is bound, runs, has ended or is gone: one that says it has ended"
            " would give its quota back",
        ),
    ],
    subresources=("status",),
)

DECISIONS: Final = _policy(
    "atoll-decisions",
    BINDINGS,
    ["CREATE", "UPDATE"],
    {
        "not-the-dispatcher": f"!({_BY_DISPATCHER})",
        # A write of the status changes nothing else, and no rule is about control's.
        "not-the-status-by-control": f"!({_OF_STATUS} && {_BY_CONTROL})",
        # A binding that Atoll schedules; all others belong to other schedulers.
        "ours": f"{_any_of((keys.GANG, keys.DECISION, keys.EPOCH))}"
        f" || {_kept_by_us('object')} || (!({_ON_CREATE}) && {_kept_by_us('oldObject')})"
        f' || object.spec.?schedulerName.orValue("") == "{keys.SCHEDULER_NAME}"',
    },
    [
        _rule(
            f'!({_ON_CREATE}) || ({_annotation("object", keys.DECISION)} == ""'
            f' && {_annotation("object", keys.EPOCH)} in ["", "0"] && object.spec.?clusters.orValue([]).size() == 0)',
            f"a binding begins undecided: without annotation {keys.DECISION}, at epoch 0, without spec.clusters;"
            f" {_WHO_DECIDES}",
        ),
        # One binding for each workload, of the name that is its own: control looks for no others.
        _rule(
            f"!({_ON_CREATE}) || {_BY_CONTROL}"
            f' || ({_annotation("object", keys.GANG)} == "" && !{_kept_by_us("object")})',
            "only atoll-control makes bindings of Atoll, one for each workload: submit a workload instead;"
            f" {_EMERGENCY}",
        ),
        _rule(
            f'!({_ON_CREATE}) || {_annotation("object", keys.GANG)} == ""'
            " || object.spec.?suspension.?scheduling.orValue(false)",
            f"a binding with a gang begins with spec.suspension.scheduling true; {_WHO_DECIDES}",
        ),
        _rule(
            f"{_ON_CREATE} || ({_same_annotations((keys.DECISION, keys.EPOCH))})",
            f"annotations {keys.DECISION} and {keys.EPOCH} can't be changed by hand: {_WHO_DECIDES}",
        ),
        _rule(
            f"{_ON_CREATE} || object.spec.?clusters == oldObject.spec.?clusters",
            f"spec.clusters can't be changed by hand: {_WHO_DECIDES}",
        ),
        _rule(
            f"{_ON_CREATE} || object.spec.?suspension == oldObject.spec.?suspension",
            f"spec.suspension can't be changed by hand: {_WHO_DECIDES}",
        ),
        # A copy that stays is not charged.
        _rule(
            f"{_ON_CREATE} || {_BY_CONTROL}"
            " || object.spec.?gracefulEvictionTasks == oldObject.spec.?gracefulEvictionTasks",
            f"spec.gracefulEvictionTasks can't be changed by hand: {_WHO_DECIDES}",
        ),
        _rule(
            f"{_ON_CREATE} || {_BY_CONTROL} || ({_same_annotations((keys.GANG, keys.ACTION))})",
            f"annotations {keys.GANG} and {keys.ACTION} are written by atoll-control from the workload: change the"
            f" workload instead; {_EMERGENCY}",
        ),
        _rule(
            f"{_ON_CREATE} || {_BY_CONTROL} || {_kept_by_us('object')} == {_kept_by_us('oldObject')}",
            f"finalizer {keys.BINDING_FINALIZER} is set and removed by atoll-control: delete the workload instead;"
            f" {_EMERGENCY}",
        ),
        _rule(
            f"!({_OF_STATUS}) || {_BY_CONTROL}",
            "only atoll-control writes the status of a binding, from what members report: a workload that says it has"
            " ended would give its quota back",
        ),
    ],
    subresources=("status",),
)

WORK_POLICY: Final = _policy(
    "atoll-works",
    WORKS,
    ["CREATE", "UPDATE"],
    {
        "not-control": f"!({_BY_CONTROL})",
        "not-the-status-by-the-member": f"!({_OF_STATUS} && {_BY_MEMBER})",
        "ours": _any_of((keys.BINDING_UID,)),
    },
    [
        _rule(
            f"!({_OF_STATUS}) || ({_BY_MEMBER})",
            "only the agent of this member reports what runs there",
        ),
        _rule(
            f"!({_ON_CREATE})",
            f"only atoll-control makes Works of Atoll, from its bindings: submit a workload instead; {_EMERGENCY}",
        ),
        _rule(
            f"{_ON_CREATE} || (object.spec == oldObject.spec && {_same_annotations(_DECISION_IDS)})",
            "what a member is to run is written by atoll-control from the workload and its binding: change the"
            f" workload instead; {_EMERGENCY}",
        ),
        _rule(
            f"{_ON_CREATE} || !({_BY_MEMBER}) || (object.metadata.?labels == oldObject.metadata.?labels"
            " && object.metadata.?annotations == oldObject.metadata.?annotations)",
            "an agent changes the finalizers of a Work and nothing else of it",
        ),
        _rule(
            f'{_ON_CREATE} || {_BY_MEMBER} || !("{keys.WORK_FINALIZER}" in oldObject.metadata.?finalizers.orValue([]))'
            f' || "{keys.WORK_FINALIZER}" in object.metadata.?finalizers.orValue([])',
            f"finalizer {keys.WORK_FINALIZER} goes when the member's agent has removed everything; if the member is"
            f" lost, use `atollctl unjoin --force`; {_EMERGENCY}",
        ),
    ],
    subresources=("status",),
)

CAPACITY: Final = _policy(
    "atoll-capacity",
    CAPACITIES,
    ["CREATE", "UPDATE"],
    {"not-the-member": f"!({_BY_MEMBER})"},
    [
        _rule(
            "false",
            "only the agent of a member says what room it has; cordon nodes in the member, or taint its Cluster;"
            f" {_EMERGENCY}",
        )
    ],
)


def _by_kind(rules: Mapping[Kind, str]) -> str:
    """CEL: the rule of the kind that a request is about."""
    return " || ".join(
        f'request.resource.group == "{kind.resource.group}" && request.resource.resource == "{kind.resource.plural}"'
        f" && ({rule})"
        for kind, rule in rules.items()
    )


_HELD: Final = f'{_annotation("object", keys.HOLD)} == "true"'

SUSPENSION: Final = _policy(
    "atoll-suspension",
    tuple(kind.resource for kind in KINDS if kind.guard.suspended),
    ["UPDATE"],
    {
        "not-control": f"!({_BY_CONTROL})",
        "atoll-suspended-it": _by_kind({kind: kind.guard.suspended for kind in KINDS if kind.guard.suspended}),
        "not-in-a-system-namespace": f"!{system_rule('request.namespace')}",
    },
    [
        _rule(
            "object.spec.?suspend.orValue(false)",
            "spec.suspend can't be set to false by hand while Atoll queues the Job",
            shown=f'{_HELD} ? "Job " + object.metadata.name + ": spec.suspend: the Job is held: release it with'
            f' `atollctl job release " + object.metadata.name + "`, or remove annotation {keys.HOLD}; it then starts'
            ' when its queue has room" : "Job " + object.metadata.name + ": spec.suspend: can\'t be set to false by'
            ' hand: the Job starts by itself when its queue has room (`atollctl explain job/" +'
            ' object.metadata.name + "` tells what it waits for)"',
        )
    ],
    opted_in=True,
)


def _queue_of(holder: str) -> str:
    """CEL: the queue that a workload names by itself; empty where it names none."""
    places = [f"dyn({holder}).spec.?queue"]
    places += [f'{holder}.metadata.?{field}[?"{key}"]' for field, key in QUEUE_PLACES]
    named = ", ".join(f'string({place}.orValue(""))' for place in places)
    return f'[{named}].filter(each, each != "")[?0].orValue("")'


QUEUE_POLICY: Final = _policy(
    "atoll-queues",
    tuple(kind.resource for kind in KINDS),
    ["UPDATE"],
    {
        "charged": _by_kind({kind: kind.guard.charged for kind in KINDS}),
        "ours": _by_kind({kind: kind.guard.ours for kind in KINDS}),
        "was-in-a-queue": f'{_queue_of("oldObject")} != ""',
        "not-in-a-system-namespace": f"!{system_rule('request.namespace')}",
    },
    [
        _rule(
            f"{_queue_of('object')} == {_queue_of('oldObject')}",
            "the queue of a workload that runs can't be changed",
            shown=f'"Job " + object.metadata.name + ": stays in queue " + {_queue_of("oldObject")} + ", which is'
            ' charged for it: hold it first (`atollctl job hold`), then move it (`atollctl job move`)"',
        )
    ],
    opted_in=True,
)

_SUBMITTER: Final = _annotation("object", keys.SUBMITTED_BY)

# The webhook writes it; this holds while no webhook is asked as well.
SUBMITTER_POLICY: Final = _policy(
    "atoll-submitters",
    tuple(kind.resource for kind in KINDS),
    ["CREATE", "UPDATE"],
    {
        "names-one": _any_of((keys.SUBMITTED_BY,)),
        "not-in-a-system-namespace": f"!{system_rule('request.namespace')}",
    },
    [
        _rule(
            f"{_ON_CREATE} ? ({_SUBMITTER} in ['', request.userInfo.username]"
            # The webhook cuts longer names.
            f" || (size({_SUBMITTER}) == {keys.MOST_SUBMITTER} && request.userInfo.username.startsWith({_SUBMITTER})))"
            f" : {_same_annotations((keys.SUBMITTED_BY,))}",
            f"annotation {keys.SUBMITTED_BY} names the user who created the workload: Atoll's webhook writes it;"
            f" {_EMERGENCY}",
        )
    ],
    opted_in=True,
)


def _may_update(queue: str) -> str:
    return f'authorizer.group("{QUEUES.group}").resource("{QUEUES.plural}").name({queue}).check("update").allowed()'


# A Command is in a namespace, and a queue in none: who may send the one need not be the one who may change the other.
COMMAND_POLICY: Final = _policy(
    "atoll-commands",
    COMMANDS,
    ["CREATE", "UPDATE"],
    {"about-a-queue": f'has(object.target) && object.target.?kind.orValue("") == "{QUEUES.kind}"'},
    [
        _rule(
            _may_update("object.target.name"),
            "a Command on a queue needs the right to update that queue: ask an administrator of the host",
            shown='"a Command on queue " + object.target.name + " needs the right to update'
            ' queues.scheduling.volcano.sh: ask an administrator of the host"',
        )
    ],
)


def _parent_of(holder: str) -> str:
    """CEL: the queue above, the root where none is named."""
    return f'({holder}.?spec.?parent.orValue("") == "" ? "{keys.ROOT_QUEUE}" : {holder}.spec.parent)'


_NEW_PARENT: Final = _parent_of("object")
_OLD_PARENT: Final = _parent_of("oldObject")

# A right to a queue by its name covers its parent, and with that the way out of the limits above.
PARENT_POLICY: Final = _policy(
    "atoll-queue-parents",
    QUEUES,
    ["CREATE", "UPDATE"],
    {"has-another-parent": f"{_ON_CREATE} || {_NEW_PARENT} != {_OLD_PARENT}"},
    [
        _rule(
            f"({_ON_CREATE} || {_may_update(_OLD_PARENT)}) && {_may_update(_NEW_PARENT)}",
            "a queue comes below another one, or leaves it, by the right to update that one",
            shown=f'"queue " + object.metadata.name + ": " + ({_ON_CREATE} ? "to be made below " + {_NEW_PARENT}'
            f' : "to go from below " + {_OLD_PARENT} + " to below " + {_NEW_PARENT})'
            ' + " needs the right to update queues.scheduling.volcano.sh by these names: ask an administrator of the'
            ' host"',
        )
    ],
    scope="Cluster",
)

# RBAC can't bind a create to a name.
REGISTRATION: Final = _policy(
    "atoll-registration",
    API_SERVICES,
    ["CREATE"],
    {"the-dispatcher": _BY_DISPATCHER},
    [_rule(f'object.metadata.name == "{keys.QUERY_API}"', "atoll-dispatcher registers its own API and no other")],
    scope="Cluster",
)

_ASKED: Final = (
    "name", "failurePolicy", "matchPolicy", "namespaceSelector", "objectSelector", "matchConditions",
    "sideEffects", "timeoutSeconds", "admissionReviewVersions", "reinvocationPolicy",
)  # fmt: skip
"""Of a webhook: all but its rules, its address and the CA."""
_SAME: Final = " && ".join(
    (
        *(f"dyn(new).?{each} == dyn(old).?{each}" for each in _ASKED),
        *(f"new.clientConfig.?{each} == old.clientConfig.?{each}" for each in ("url", "service")),
    )
)
_SAME_RULES: Final = "dyn(new).?rules == dyn(old).?rules"
_SAME_WEBHOOK: Final = f"{_SAME} && {_SAME_RULES}"
_SAME_BUT_RULES: Final = (
    f"{_SAME} && new.clientConfig.?caBundle == old.clientConfig.?caBundle"
    f" && ({_SAME_RULES} || {list(keys.DECLARED_WEBHOOKS)}"
    ".exists(end, new.name.endsWith('.' + end)) && new.?rules.orValue([]).all(each,"
    " each.operations == ['CREATE', 'UPDATE'] && each.scope == 'Namespaced'"
    " && each.apiGroups.all(group, group.contains('.'))"
    " && each.resources.all(name, name != '*' && !name.contains('/'))))"
)
_BY_WEBHOOK: Final = f'request.userInfo.username == "{_ACCOUNT}webhook"'


def _kept_webhooks(same: str) -> str:
    """CEL: each webhook is the same as before, and the configuration as well."""
    return (
        f"(!({_ON_CREATE})"
        " && object.?webhooks.orValue([]).size() == oldObject.?webhooks.orValue([]).size()"
        f" && object.?webhooks.orValue([]).all(new, oldObject.?webhooks.orValue([]).exists(old, {same}))"
        " && ['labels', 'annotations', 'finalizers', 'ownerReferences'].all(each,"
        " dyn(object).metadata[?each] == dyn(oldObject).metadata[?each]))"
    )


# Credentials of the webhook and of control must not let the host's API server ask about more or less, or ask another
# server. No webhook is asked about these objects; policies are.
WEBHOOK_POLICY: Final = _policy(
    "atoll-webhooks",
    (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS),
    ["CREATE", "UPDATE"],
    {"atoll": f"{_BY_WEBHOOK} || {_BY_CONTROL}"},
    [
        _rule(
            f"{_BY_CONTROL} || {_kept_webhooks(_SAME_WEBHOOK)}",
            "atoll-webhook renews the CA of its webhooks and changes nothing else of them: `atollctl init` writes them",
        ),
        _rule(
            f"{_BY_WEBHOOK} || {_kept_webhooks(_SAME_BUT_RULES)}",
            "atoll-control keeps the rules for declared kinds and changes nothing else of webhooks: `atollctl init`"
            " writes them",
        ),
    ],
    scope="Cluster",
)

_WAY: Final = f'.metadata.?labels[?"{keys.ENABLED}"].orValue("")'

NAMESPACE_POLICY: Final = _policy(
    "atoll-namespaces",
    NAMESPACES,
    ["CREATE", "UPDATE"],
    {"opts-in": f'object{_WAY} != "" && ({_ON_CREATE} || object{_WAY} != oldObject{_WAY})'},
    [
        _rule(
            f'object{_WAY} in ["{namespaces.ALL}", "{namespaces.LABELLED}", "false"]',
            f"label {keys.ENABLED} is true (all workloads of the namespace are Atoll's), {namespaces.LABELLED} (those"
            " that name a queue), or false",
        ),
        _rule(
            f"object{_WAY} == 'false' || !{system_rule('object.metadata.name')}",
            f"system namespaces can't be opted in ({keys.ENABLED}): those named"
            f" {', '.join(namespaces.NAMES)}, and those that begin with {' or '.join(namespaces.PREFIXES)}; submit"
            " workloads in another namespace",
        ),
    ],
    scope="Cluster",
)

_AGENTS: Final = f"{certificates.ACCOUNT}{keys.EXECUTION_PREFIX}"
_MEMBER_OF: Final = "{0}.replace('" + _AGENTS + "', '').replace(':" + certificates.AGENT + "', '')"


def _by_agent(user: str) -> str:
    """CEL: a user name is that of an agent."""
    return f"{user}.startsWith('{_AGENTS}') && {user}.endsWith(':{certificates.AGENT}')"


_ASKER: Final = "object.spec.username"
_USAGES: Final = " && ".join(f"'{each}' in object.spec.usages" for each in certificates.USAGES)

# RBAC can't bind a create to a name, nor an approval to a subject; control reads the subject.
CERTIFICATE_POLICY: Final = _policy(
    "atoll-certificates",
    SIGNING_REQUESTS,
    ["CREATE", "UPDATE"],
    {
        "an-agent-or-control": f"({_ON_CREATE} && {_by_agent('request.userInfo.username')})"
        f" || (!({_ON_CREATE}) && {_BY_CONTROL})"
    },
    [
        _rule(
            f"{_by_agent(_ASKER)} && object.metadata.name == '{certificates.AGENT}-' + {_MEMBER_OF.format(_ASKER)}"
            f" && object.spec.signerName == '{certificates.SIGNER}'"
            f" && object.spec.usages.size() == {len(certificates.USAGES)} && {_USAGES}"
            f" && object.spec.?expirationSeconds.orValue(0) == {certificates.LIFE}",
            "an agent asks for its own certificate as a client of the host, under the name of its member, and"
            " atoll-control approves no other",
        )
    ],
    subresources=("approval",),
    scope="Cluster",
)

POLICIES: Final = (
    DECISIONS, WORK_POLICY, CAPACITY, SUSPENSION, QUEUE_POLICY, SUBMITTER_POLICY, COMMAND_POLICY,
    PARENT_POLICY, REGISTRATION, NAMESPACE_POLICY, WEBHOOK_POLICY, CERTIFICATE_POLICY,
)  # fmt: skip
"""Each policy with its binding."""

CAPACITY_ON_KARMADA: Final = _policy(
    "atoll-capacity",
    CAPACITIES,
    ["CREATE", "UPDATE"],
    {"not-control": f"!({_BY_CONTROL})"},
    [_rule("false", f"atoll-control says what room a member has, by what Karmada summarises; {_EMERGENCY}")],
)

ON_KARMADA: Final = (DECISIONS_ON_KARMADA, CAPACITY_ON_KARMADA, PARENT_POLICY, REGISTRATION, WEBHOOK_POLICY)
"""Those on a Karmada: its Works, and the workloads themselves, are its own."""


async def ensure_policies(host: ApiServer, wanted: tuple[tuple[Json, Json], ...] = POLICIES) -> None:
    """Create or update policies, then their bindings. Safe to repeat.

    Raises:
        Refused: the host's API server has no such policies.
        ApiError: the host refused.
    """
    try:
        for policy, binding in wanted:
            await host.apply(ADMISSION_POLICIES, policy, field_manager=FIELD_MANAGER)
            await host.apply(ADMISSION_POLICY_BINDINGS, binding, field_manager=FIELD_MANAGER)
    except errors.NotFound as error:
        raise Refused(
            "the host has no ValidatingAdmissionPolicies (admissionregistration.k8s.io/v1): turn that API on"
            " (--runtime-config of kube-apiserver)"
        ) from error


async def remove_policies(host: ApiServer) -> None:
    """The inverse of `ensure_policies`: bindings first, so that no policy is enforced by half."""
    for policy, binding in POLICIES:
        await host.delete(ADMISSION_POLICY_BINDINGS, binding["metadata"]["name"])
        await host.delete(ADMISSION_POLICIES, policy["metadata"]["name"])
