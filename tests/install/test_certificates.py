"""Agents with client certificates: a host whose signer signs them, `atoll-control`, and one member."""

from __future__ import annotations

import base64
import ssl
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from atoll import install
from atoll.agent import joining
from atoll.agent.push_credentials import host_connection, host_renewal, host_secret
from atoll.kube import client_certificates, token_renewal
from atoll.kube.access import load_chain, tls_context
from atoll.kube.authority import make_signer
from atoll.kube.certificates import issue
from atoll.kube.errors import ApiError, Forbidden
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.keeper import KeptProcess
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec, python_path
from atoll.model import certificates, keys
from atoll.model.apiresource import (
    CAPACITIES,
    CLUSTER_REQUESTS,
    CLUSTERS,
    NAMESPACES,
    SECRETS,
    SIGNING_REQUESTS,
    ApiResource,
)
from tests.integration.federation import until

Json = dict[str, Any]

WHO_AM_I = ApiResource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]


def subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def signing(folder: Path) -> dict[str, list[str]]:
    """Flags of a host that signs client certificates, as kubeadm's do."""
    made = make_signer(datetime.now(UTC), name="clients")
    certificate, key = folder / "clients.crt", folder / "clients.key"
    certificate.write_bytes(made.certificate)
    key.write_bytes(made.key)
    signer = [f"--cluster-signing-cert-file={certificate}", f"--cluster-signing-key-file={key}"]
    controller = "--controllers=certificatesigningrequest-signing-controller"
    return {"apiserver": [f"--client-ca-file={certificate}"], "controller-manager": [controller, *signer]}


def control_spec(folder: Path) -> ProcessSpec:
    [health] = free_ports(1)
    words = ["-m", "atoll.control", f"--kubeconfig={folder / 'atoll-control.kubeconfig'}", f"--health-port={health}"]
    return ProcessSpec(
        name="control",
        argv=[sys.executable, *words],
        env={"PYTHONPATH": python_path()},
        ready_url=f"http://127.0.0.1:{health}/readyz",
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    """A host with `atoll-control`, and a cluster that may become a member."""
    folder = tmp_path_factory.mktemp("certificates")
    config = FederationConfig.model_validate({"host": {"flags": signing(folder)}, "members": [{"name": "east"}]})
    async with Federation(config, directory=folder / "federation", binaries=ensure()) as federation:
        async with await federation.host.connect() as api:
            at = await install.endpoint(federation.host.kubeconfig)
            await install.init(api, at, out=folder, webhook_client_config={"url": "https://127.0.0.1:1"})
        async with await federation.members["east"].connect() as api:
            await install.prepare_invited(api, "east", placing=install.PlacingWish())
        control = KeptProcess(control_spec(folder), folder)
        await control.start()
        try:
            await control.ready()
            yield federation
        finally:
            await control.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def east(bare: Federation) -> AsyncIterator[ApiServer]:
    """A cluster that is not joined, before and after."""
    async with await bare.members["east"].connect() as api:
        yield api
        await api.delete(SECRETS, keys.HOST_SECRET, keys.SYSTEM_NAMESPACE)
    async with await bare.host.connect() as api:
        for each in await api.list(CLUSTERS):
            await install.unjoin(api, None, each["metadata"]["name"], force=True)


async def joined(bare: Federation, host: ApiServer, east: ApiServer) -> None:
    """By an invitation that was approved in advance."""
    only = (await east.get(NAMESPACES, "kube-system"))["metadata"]["uid"]
    at = await install.endpoint(bare.host.kubeconfig)
    made = await install.invite(host, "east", at, only=only, by_certificate=True)
    await joining.join(east, "east", joining.Invitation(made.url, made.token, made.ca_hash), {}, lambda _: None)


async def user_of(api: ApiServer) -> Json:
    answer = await api.create(WHO_AM_I, {"apiVersion": WHO_AM_I.api_version, "kind": WHO_AM_I.kind, "metadata": {}})
    return dict(answer["status"]["userInfo"])


async def strange(bare: Federation) -> ssl.SSLContext:
    """A client with a certificate of another authority."""
    at = await install.endpoint(bare.host.kubeconfig)
    assert at.ca is not None
    context, now = tls_context(ca_data=at.ca.decode()), datetime.now(UTC)
    leaf = issue(make_signer(now, name="others"), (), now, client=certificates.account("east"))
    load_chain(context, leaf.chain + leaf.key)
    return context


async def stored(east: ApiServer) -> dict[str, str]:
    secret = await host_secret(east)
    assert secret is not None
    return token_renewal.in_kubeconfig(base64.b64decode(secret["data"]["kubeconfig"]).decode()) or {}


async def test_invited_member_has_a_certificate_which_it_renews_before_its_end(
    bare: Federation, host: ApiServer, east: ApiServer
) -> None:
    await joined(bare, host, east)
    before = await stored(east)
    assert set(before) == {certificates.CERTIFICATE, certificates.KEY}
    claims = token_renewal.claims_in(before)
    assert claims is not None
    assert certificates.LIFE - 60 <= claims.expires - claims.issued <= certificates.LIFE + 600
    connection = await host_connection(east, "east")
    async with ApiServer(connection) as agent:
        user = await user_of(agent)
        assert user["username"] == "system:serviceaccount:karmada-es-east:atoll-agent"
        assert set(user["groups"]) == {*certificates.groups("east"), "system:authenticated"}
        assert await agent.list(CAPACITIES, "karmada-es-east") == []
        with pytest.raises(Forbidden):
            await agent.list(SECRETS, "karmada-es-east")
        renewal = host_renewal(east, agent)
        assert await renewal.look(claims.due - 1000) > 1
        assert await stored(east) == before, "it is early"
        await renewal.look(claims.due + 1)
        assert renewal.problem == ""
        assert renewal.expires >= claims.expires
        # One that the host does not take any more, as after its end.
        connection.tls = await strange(bare)
        assert await agent.list(CAPACITIES, "karmada-es-east") == []
    after = await stored(east)
    assert after[certificates.CERTIFICATE] != before[certificates.CERTIFICATE]
    assert after[certificates.KEY] != before[certificates.KEY]
    async with ApiServer(await host_connection(east, "east")) as agent:
        assert await agent.list(CAPACITIES, "karmada-es-east") == []
    assert await host.list(SIGNING_REQUESTS) == []
    assert await host.list(CLUSTER_REQUESTS) == []


async def test_joined_member_gets_a_certificate_that_its_administrator_approves(
    bare: Federation, host: ApiServer, east: ApiServer, tmp_path: Path
) -> None:
    async def join(by_certificate: bool | None) -> dict[str, str]:
        await install.join(
            host, east, "east",
            host_at=await install.endpoint(bare.host.kubeconfig),
            member_at=await install.endpoint(bare.members["east"].kubeconfig),
            out=tmp_path, by_certificate=by_certificate,
        )  # fmt: skip
        file, _ = install.agent_kubeconfigs(tmp_path, "east")
        async with await ApiServer.from_kubeconfig(file) as agent:
            assert await agent.list(CAPACITIES, "karmada-es-east") == []
        return token_renewal.in_kubeconfig(file.read_text()) or {}

    assert set(await join(None)) == {"token"}
    assert certificates.CERTIFICATE in await join(True)
    found = await join(None)
    assert certificates.CERTIFICATE in found, "a repeated join leaves it"
    file, _ = install.agent_kubeconfigs(tmp_path, "east")
    claims = token_renewal.claims_in(found)
    assert claims is not None
    async with await ApiServer.from_kubeconfig(file) as agent:
        renewal = token_renewal.of_file(agent, file)
        assert renewal is not None
        await renewal.look(claims.due + 1)
        assert renewal.problem == ""
    assert token_renewal.in_kubeconfig(file.read_text()) != found
    assert set(await join(False)) == {"token"}
    async with await ApiServer.from_kubeconfig(file) as agent:
        with pytest.raises(Forbidden):
            await client_certificates.ask(agent, "east")


async def test_no_other_request_is_made_or_approved(bare: Federation, host: ApiServer, east: ApiServer) -> None:
    """1. An agent may ask for nothing else. 2. Nobody else is answered. 3. `atoll-control` may approve nothing else."""
    await joined(bare, host, east)

    def request(name: str = "atoll-agent-east", common_name: str = "", **changes: Any) -> Json:
        names = subject(common_name) if common_name else client_certificates.subject_of("east")
        key = ec.generate_private_key(ec.SECP256R1())
        pem = x509.CertificateSigningRequestBuilder().subject_name(names).sign(key, hashes.SHA256())
        encoded = base64.b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode()
        spec = {
            "request": encoded, "signerName": certificates.SIGNER, "usages": list(certificates.USAGES),
            "expirationSeconds": certificates.LIFE, **changes,
        }  # fmt: skip
        return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "metadata": {"name": name}, "spec": spec}  # fmt: skip

    async with ApiServer(await host_connection(east, "east")) as agent:
        for wrong in (
            request("atoll-agent-west"),
            request(signerName="kubernetes.io/kubelet-serving", usages=["digital signature", "server auth"]),
            request(usages=["digital signature", "key encipherment", "client auth"]),
            request(expirationSeconds=certificates.LIFE + 1),
        ):
            with pytest.raises(ApiError, match="an agent asks for its own certificate"):
                await agent.create(SIGNING_REQUESTS, wrong)
        # What a policy can't read, control does.
        await agent.create(SIGNING_REQUESTS, request(common_name="system:kube-controller-manager"))
        with pytest.raises(Forbidden):
            await client_certificates.approve(agent, await agent.get(SIGNING_REQUESTS, "atoll-agent-east"), "agent")
        await not_approved(bare, host, "its subject is 'CN=system:kube-controller-manager'")
        await client_certificates.ask(agent, "east")
    await host.create(SIGNING_REQUESTS, request())
    await not_approved(bare, host, "spec.username is 'admin'")
    other = await host.create(SIGNING_REQUESTS, request("atoll-agent-other"))
    async with await bare.host.connect() as admin:
        token, _ = await install.issue_token(admin, "atoll-control", keys.SYSTEM_NAMESPACE)
    at = await install.endpoint(bare.host.kubeconfig)
    async with ApiServer(joining.connection(at, token)) as control:
        for each in (other, await host.get(SIGNING_REQUESTS, "atoll-agent-east")):
            with pytest.raises(ApiError, match="atoll-control approves no other"):
                await client_certificates.approve(control, each, "test")
    for name in ("atoll-agent-east", "atoll-agent-other"):
        await host.delete(SIGNING_REQUESTS, name)


async def not_approved(bare: Federation, host: ApiServer, why: str) -> None:
    """Control has seen the request and left it."""
    log = bare.directory.parent / "control.log"

    async def said() -> bool:
        return why in log.read_text()

    await until(said, what=f"control says {why}")
    assert not (await host.get(SIGNING_REQUESTS, "atoll-agent-east")).get("status")


async def test_host_that_signs_nothing_is_named(bare: Federation, host: ApiServer, east: ApiServer) -> None:
    await joined(bare, host, east)

    async def nobody(_: Json) -> None:
        return None

    async with ApiServer(await host_connection(east, "east")) as agent:
        with pytest.raises(client_certificates.NotSigned, match="got no certificate of kubernetes"):
            await client_certificates.ask(agent, "east", approve=nobody, wait=0.0)
