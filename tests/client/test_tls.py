"""TLS with verification: whom a client trusts, and what it says when it does not. The servers are fakes."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ringmq.client import ConnectionSettings, Message, Producer, SendError, TlsError, TlsSettings, blocking
from ringmq.client.retry import RetryPolicy
from tests.certificates import Authority, Pair
from tests.client.fake_broker import FakeCluster
from tests.patient_clients import OneTry


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "other authority")


@pytest.fixture(scope="module")
def local(authority: Authority) -> Pair:
    return authority.sign("server", "127.0.0.1", "localhost", "broker.example")


@asynccontextmanager
async def serving(pair: Pair, client_authority: Authority | None = None) -> AsyncIterator[FakeCluster]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if client_authority is not None:
        context.load_verify_locations(client_authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
    async with FakeCluster(topics={"T": 2}, tls=context) as cluster:
        yield cluster


async def send(cluster: FakeCluster, tls: TlsSettings | None, kind: str = "asyncio") -> None:
    """One message by the client of a kind."""
    settings = ConnectionSettings(tls=tls)
    if kind == "asyncio":
        async with Producer(cluster.namesrv, retry=OneTry(), settings=settings) as producer:
            await producer.send(Message("T", b"x"))
        return

    def send_blocking() -> None:
        with blocking.Producer(cluster.namesrv, retry=OneTry(), settings=settings) as producer:
            producer.send(Message("T", b"x"))

    await asyncio.to_thread(send_blocking)


@pytest.fixture(params=["asyncio", "blocking"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


async def refusal(cluster: FakeCluster, tls: TlsSettings | None, kind: str) -> str:
    with pytest.raises(SendError) as caught:
        await send(cluster, tls, kind)
    assert caught.value.code is None
    assert not [m for messages in cluster.broker.queues.values() for m in messages]
    return str(caught.value)


async def test_a_server_of_the_authority_is_taken(authority: Authority, local: Pair, kind: str) -> None:
    async with serving(local) as cluster:
        await send(cluster, TlsSettings(ca_file=authority.file), kind)
        await send(cluster, TlsSettings(ca_file=str(authority.file), server_name="broker.example"), kind)
        await send(cluster, TlsSettings(insecure_skip_verification=True), kind)
        assert sum(map(len, cluster.broker.queues.values())) == 3


async def test_another_authority_is_refused(other: Authority, local: Pair, kind: str) -> None:
    async with serving(local) as cluster:
        words = await refusal(cluster, TlsSettings(ca_file=other.file), kind)
        assert cluster.namesrv in words
        assert "not signed by an authority of tls.ca_file" in words
        assert "of this host" in await refusal(cluster, TlsSettings(), kind)


async def test_another_name_is_refused(authority: Authority, local: Pair, kind: str) -> None:
    elsewhere = authority.sign("elsewhere", "elsewhere.example")
    trusting = TlsSettings(ca_file=authority.file)
    async with serving(elsewhere) as cluster:
        words = await refusal(cluster, trusting, kind)
        assert "127.0.0.1" in words
        assert "set tls.server_name" in words
        await send(cluster, replace(trusting, server_name="elsewhere.example"), kind)
    async with serving(local) as cluster:
        words = await refusal(cluster, replace(trusting, server_name="elsewhere.example"), kind)
        assert "elsewhere.example" in words


async def test_an_expired_certificate_is_refused(authority: Authority, kind: str) -> None:
    async with serving(authority.sign("old", "127.0.0.1", first_day=-9, last_day=-2)) as cluster:
        assert "not valid now" in await refusal(cluster, TlsSettings(ca_file=authority.file), kind)


async def test_a_server_that_wants_a_certificate_gets_it(authority: Authority, local: Pair, kind: str) -> None:
    own = authority.sign("client")
    bare = TlsSettings(ca_file=authority.file)
    async with serving(local, authority) as cluster:
        with_own = replace(bare, certificate_file=own.certificate, key_file=own.key)
        assert "does it want TLS, or a client certificate?" in await refusal(cluster, bare, kind)
        await send(cluster, with_own, kind)


async def test_one_side_without_tls_is_told_apart(authority: Authority, local: Pair, kind: str) -> None:
    async with FakeCluster(topics={"T": 2}) as cluster:
        assert "does not speak TLS" in await refusal(cluster, TlsSettings(ca_file=authority.file), kind)
    async with serving(local) as cluster:
        assert "does it want TLS" in await refusal(cluster, None, kind)


async def test_a_certificate_is_not_tried_again(other: Authority, local: Pair) -> None:
    patient = RetryPolicy(attempts=3, budget_ms=60_000)
    settings = ConnectionSettings(tls=TlsSettings(ca_file=other.file))
    async with serving(local) as cluster, Producer(cluster.namesrv, retry=patient, settings=settings) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message("T", b"x"))
    assert isinstance(caught.value.cause, TlsError)


def test_files_that_do_not_serve_are_named(authority: Authority, other: Authority, local: Pair, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(ValueError, match=rf"tls\.ca_file {nonsense} holds no PEM certificate"):
        TlsSettings(ca_file=nonsense).context()
    foreign = other.sign("foreign")
    with pytest.raises(ValueError, match=rf"tls\.key_file {foreign.key} are no certificate with its key.*mismatch"):
        TlsSettings(certificate_file=local.certificate, key_file=foreign.key).context()


def test_contradictions_are_refused(authority: Authority) -> None:
    for contradiction in ({"ca_file": authority.file}, {"server_name": "x"}):
        with pytest.raises(ValueError, match="insecure_skip_verification verifies nothing"):
            TlsSettings(insecure_skip_verification=True, **contradiction)  # type: ignore[arg-type]
