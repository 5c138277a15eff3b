"""A stock name server and broker with TLS, and users by authentication 2.0: what the SDK's credentials and TLS
settings are worth there."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import (
    BrokerError,
    ConnectionSettings,
    ConsumeFrom,
    Consumer,
    Credentials,
    Message,
    Producer,
    SendError,
    SimpleConsumer,
    TlsError,
    TlsSettings,
    blocking,
)
from ringmq.client.retry import RetryPolicy
from ringmq.loadtest.stock import start_broker, start_namesrv
from tests.certificates import Authority
from tests.commands import run_ringmq

pytestmark = [
    pytest.mark.stock,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="stock RocketMQ comes through Maven"),
]
USER = '{"username":"%s","password":"%s"}'
ADMIN = Credentials("admin", "admin-12345678")
# the first TLS handshakes of a Java process take seconds on a busy machine
LONG_BUDGET = RetryPolicy(budget_ms=30_000)
SHORT_BUDGET = RetryPolicy(attempts=1, budget_ms=10_000)


@dataclass(frozen=True)
class Secured:
    """The servers, and the settings that open them."""

    namesrv: str
    settings: ConnectionSettings
    other_authority: Authority

    def without_tls(self, credentials: Credentials | None) -> ConnectionSettings:
        return replace(self.settings, tls=None, credentials=credentials)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    home = tmp_path_factory.mktemp("secured")
    authority = Authority(home)
    server, own = authority.sign("server", "rocketmq.example"), authority.sign("client")
    plain = tls_file(home / "namesrv-tls.properties", {
        "tls.server.keyPath": server.key,
        "tls.server.certPath": server.certificate,
    })  # fmt: skip
    mutual = tls_file(home / "broker-tls.properties", {
        "tls.server.keyPath": server.key,
        "tls.server.certPath": server.certificate,
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": authority.file,
    })  # fmt: skip
    properties: dict[str, str | int | bool] = {
        "mappedFileSizeCommitLog": 64 << 20,
        "authenticationEnabled": True,
        "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": (
            "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        "initAuthenticationUser": USER % (ADMIN.access_key, ADMIN.secret_key),
        "innerClientAuthenticationCredentials": (
            f'{{"accessKey":"{ADMIN.access_key}","secretKey":"{ADMIN.secret_key}"}}'
        ),
    }
    namesrv = start_namesrv(home=home / "namesrv", jvm=(f"-Dtls.config.file={plain}",))
    try:
        broker = start_broker(
            properties, home=home / "broker", namesrv=namesrv.address, jvm=(f"-Dtls.config.file={mutual}",)
        )
        try:
            tls = TlsSettings(authority.file, own.certificate, own.key, server_name="rocketmq.example")
            settings = ConnectionSettings(20_000, 20_000, tls=tls, credentials=ADMIN)
            yield Secured(namesrv.address, settings, Authority(home, "other authority"))
        finally:
            broker.kill()
    finally:
        namesrv.kill()


def tls_file(path: Path, values: dict[str, object]) -> Path:
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    path.write_text(f"tls.test.mode.enable=false\n{text}")
    return path


@pytest.mark.parametrize("transport", ["tls", "plain"])
async def test_signed_requests_are_served(secured: Secured, topic: str, transport: str) -> None:
    settings = secured.settings if transport == "tls" else secured.without_tls(ADMIN)
    async with Producer(secured.namesrv, retry=LONG_BUDGET, settings=settings) as producer:
        await producer.send(Message(topic, b"slow way"))
        await producer.send_all([Message(topic, b"%d" % i) for i in range(20)])
        await producer.send_batch([Message(topic, b"in a batch", {"KEYS": "ü"}) for _ in range(2)])
        await producer.send(Message(topic, bytes(100_000)))
    async with (
        Consumer(topic, secured.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST, settings=settings) as consumer,
        asyncio.timeout(60),
    ):
        bodies: list[bytes] = []
        while len(bodies) < 24:
            bodies += [m.body for m in await consumer.poll()]
        await consumer.commit()
    assert sorted(set(bodies), key=len)[-2:] == [b"in a batch", bytes(100_000)]


async def test_pops_are_signed(secured: Secured, topic: str) -> None:
    async with Producer(secured.namesrv, retry=LONG_BUDGET, settings=secured.settings) as producer:
        await producer.send_batch([Message(topic, b"%d" % i) for i in range(4)])
    first: dict[str, Any] = {"consume_from": ConsumeFrom.FIRST}
    async with SimpleConsumer(topic, secured.namesrv, f"g_{topic}", settings=secured.settings, **first) as consumer:
        one, other, *rest = await consumer.receive(wait_ms=30_000)
        await consumer.ack(one)
        await consumer.ack(rest)
        await consumer.change_invisible(other, 60_000)
        await consumer.ack(other)
    wrong = replace(secured.settings, credentials=Credentials("admin", "wrong-secret"))
    async with SimpleConsumer(topic, secured.namesrv, f"g_{topic}", settings=wrong, **first) as consumer:
        with pytest.raises(BrokerError, match="secret key is not that of the access key"):
            await consumer.receive(wait_ms=60_000)


def test_the_blocking_client_signs_and_encrypts_too(secured: Secured, topic: str) -> None:
    with blocking.Producer(secured.namesrv, retry=LONG_BUDGET, settings=secured.settings) as producer:
        producer.send(Message(topic, b"x"))
    with blocking.Consumer(
        topic, secured.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST, settings=secured.settings
    ) as consumer:
        assert [m.body for m in consumer.poll(timeout_ms=30_000)] == [b"x"]
    with blocking.Cluster(secured.namesrv, settings=secured.settings) as cluster:
        assert topic in cluster.topics()
        assert sum(end for _, end in cluster.bounds([topic]).values()) == 1


def test_the_command_line_does_too(secured: Secured, topic: str, tmp_path: Path) -> None:
    tls, secret = secured.settings.tls, tmp_path / "secret"
    assert tls is not None
    secret.touch(0o600)
    secret.write_text(ADMIN.secret_key + "\n")
    files = ["--tls-ca", tls.ca_file, "--tls-cert", tls.certificate_file, "--tls-key", tls.key_file]
    user = ["--tls-server-name", tls.server_name, "--access-key", ADMIN.access_key, "--secret-key-file", secret]

    def ringmq(*words: str, status: int = 0) -> str:
        places = map(str, [*files, *user])
        done = run_ringmq(*words, "-n", secured.namesrv, "--namespace", "ns", *places)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    ringmq("topic", "create", topic, "-q", "1")
    ringmq("produce", topic, "-m", "x")
    ringmq("group", "create", f"g_{topic}")
    assert ringmq("consume", topic, "-c", "1", "-g", f"g_{topic}") == "x\n"
    assert "total lag 0" in ringmq("group", "progress", f"g_{topic}")
    assert topic in ringmq("topic", "list") and f"g_{topic}" in ringmq("group", "list")
    secret.write_text("wrong-secret")
    told = ringmq("topic", "status", topic, status=1)
    assert "see --secret-key-file" in told and "wrong-secret" not in told


@pytest.mark.parametrize(
    ("credentials", "words"),
    [
        (Credentials("admin", "wrong-secret"), "secret key is not that of the access key"),
        (Credentials("nobody", "12345678"), "names no user of the broker"),
        (None, "give credentials= to the settings"),
    ],
)
async def test_a_wrong_key_is_told_what_to_do(
    secured: Secured, topic: str, credentials: Credentials | None, words: str
) -> None:
    settings = replace(secured.settings, credentials=credentials)
    async with Producer(secured.namesrv, retry=SHORT_BUDGET, settings=settings) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message(topic, b"x"))
    assert caught.value.code == 16
    assert isinstance(caught.value.cause, BrokerError)
    assert words in str(caught.value)
    assert "wrong-secret" not in str(caught.value)


async def test_whom_the_client_does_not_trust_it_does_not_tell_anything(secured: Secured, topic: str) -> None:
    tls = secured.settings.tls
    assert tls is not None
    for wrong, words in (
        (replace(tls, ca_file=secured.other_authority.file), "tls.ca_file"),
        (replace(tls, server_name=None), "IP address mismatch"),
    ):
        settings = replace(secured.settings, tls=wrong)
        async with Producer(secured.namesrv, retry=SHORT_BUDGET, settings=settings) as producer:
            with pytest.raises(SendError) as caught:
                await producer.send(Message(topic, b"x"))
        assert isinstance(caught.value.cause, TlsError)
        assert words in str(caught.value)


async def test_a_broker_that_wants_a_certificate_says_so(secured: Secured, topic: str) -> None:
    assert secured.settings.tls is not None
    bare = replace(secured.settings.tls, certificate_file=None, key_file=None)
    settings = replace(secured.settings, tls=bare)
    async with Producer(secured.namesrv, retry=SHORT_BUDGET, settings=settings) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message(topic, b"x"))
    assert "tls.certificate_file" in str(caught.value)
