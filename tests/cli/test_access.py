"""Users, TLS and namespaces on the command line: from options to settings, and to servers that want all of it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ringmq.cli.access import Access, client_options, credentials_of, in_options, secret_of, server_options, tls_of
from ringmq.cli.main import main
from ringmq.client import Credentials, TlsSettings
from ringmq.client.errors import BrokerError
from ringmq.client.security.signing import RequestSigner
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from tests.certificates import Authority, Pair
from tests.client.fake_broker import FakeBroker, FakeCluster, refuse
from tests.commands import run_ringmq

SECRET = "s3cr3t-value"
USER = Credentials("shop", SECRET)
ENVIRON = {"RINGMQ_ACCESS_KEY": "env", "RINGMQ_SECRET_KEY": "env-secret", "RINGMQ_SECURITY_TOKEN": "env-token"}


def secret_file(path: Path, text: str = SECRET, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_user_and_the_files_of_secrets(tmp_path: Path, end: str) -> None:
    key, token = secret_file(tmp_path / "key", SECRET + end), secret_file(tmp_path / "token", "t" + end)
    assert credentials_of({}, "shop", key) == USER
    assert credentials_of({}, "shop", key, token) == Credentials("shop", SECRET, "t")


def test_a_file_of_all_of_it(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "tools.yml", f"accessKey: shop\nsecretKey: {SECRET}\n")
    assert credentials_of(ENVIRON, credentials_file=path) == USER


def test_options_before_environment(tmp_path: Path) -> None:
    key = secret_file(tmp_path / "key")
    assert credentials_of({}) is None
    assert credentials_of(ENVIRON) == Credentials("env", "env-secret", "env-token")
    assert credentials_of(ENVIRON, "shop", key) == USER, "a token of another secret is not ours"
    assert credentials_of(ENVIRON, "shop") == Credentials("shop", "env-secret", "env-token")
    assert credentials_of(ENVIRON, secret_key_file=key) == Credentials("env", SECRET)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--access-key", "shop"], ["--secret-key-file", "RINGMQ_SECRET_KEY"]),
        (["--secret-key-file", "good"], ["--access-key", "RINGMQ_ACCESS_KEY"]),
        (["--access-key", "", "--secret-key-file", "good"], ["--access-key", "is empty"]),
        (["--access-key", "shop", "--secret-key-file", "none"], ["--secret-key-file", "/none cannot be read: No such"]),
        (["--access-key", "shop", "--secret-key-file", "."], ["--secret-key-file", "it is a folder"]),
        (["--access-key", "shop", "--secret-key-file", "empty"], ["--secret-key-file", "/empty is empty"]),
        (["--access-key", "shop", "--secret-key-file", "lines"], ["--secret-key-file", "/lines holds a control"]),
        (["--access-key", "shop", "--secret-key-file", "latin"], ["--secret-key-file", "/latin is not UTF-8"]),
        (["--access-key", "shop", "--secret-key-file", "large"], ["--secret-key-file", "limit of 65536 bytes"]),
        (["--access-key", "shop", "--secret-key-file", "open"], ["--secret-key-file", "/open can be read by every"]),
        (
            ["--access-key", "shop", "--secret-key-file", "good", "--security-token-file", "open"],
            ["--security-token-file", "chmod 600"],
        ),
        (["--credentials-file", "open"], ["--credentials-file", "/open can be read by every"]),
        (["--credentials-file", "good"], ["--credentials-file", "/good has no line accessKey"]),
        (["--credentials-file", "good", "--access-key", "shop"], ["--credentials-file", "leave --access-key"]),
        (["--tls-key", "good"], ["--tls-key needs --tls-cert"]),
        (["--tls-key-password-file", "good"], ["--tls-key-password-file needs --tls-cert"]),
        (["--tls-cert", "good", "--tls-key-password-file", "open"], ["--tls-key-password-file", "chmod 600"]),
        (["--tls-insecure", "--tls-ca", "good"], ["--tls-insecure verifies nothing: --tls-ca and"]),
        (["--tls-ca", "none"], ["--tls-ca", "/none cannot be read: No such file"]),
        (["--tls-ca", "good"], ["--tls-ca", "/good holds no PEM certificate"]),
        (["--tls-cert", "good"], ["--tls-cert", "are no certificate with its key"]),
        (["--namespace", "a%b"], ["--namespace", "letters, digits, _ and -"]),
    ],
)
def test_bad_input_names_option_and_file(
    tmp_path: Path, unused_address: str, arguments: Sequence[str], words: Sequence[str]
) -> None:
    secret_file(tmp_path / "good")
    secret_file(tmp_path / "open", f"accessKey=shop\nsecretKey={SECRET}", 0o644)
    secret_file(tmp_path / "empty", "\n")
    secret_file(tmp_path / "lines", f"{SECRET}\nmore\n")
    secret_file(tmp_path / "large", SECRET * 10_000)
    secret_file(tmp_path / "latin").write_bytes(b"\xff\xfe")
    names = {path.name for path in tmp_path.iterdir()} | {"none", "."}
    given = [str(tmp_path / word) if word in names else word for word in arguments]
    result = CliRunner().invoke(main, ["topic", "list", "-n", unused_address, *given])
    assert result.exit_code in (1, 2)
    text = " ".join(result.output.split())
    assert all(word in text for word in words), text
    assert SECRET not in text
    assert "Traceback" not in text


def test_tls_options_are_those_of_the_sdk() -> None:
    assert tls_of() is None
    assert tls_of(tls=True) == TlsSettings()
    assert tls_of(tls_insecure=True) == TlsSettings(insecure_skip_verification=True)
    assert tls_of(tls_server_name="x") == TlsSettings(server_name="x")
    ca, cert, key = Path("ca"), Path("cert"), Path("key")
    assert tls_of(tls_ca=ca, tls_cert=cert, tls_key=key) == TlsSettings(ca, cert, key)


def test_the_password_of_a_key_comes_from_a_file(tmp_path: Path) -> None:
    tls = tls_of(tls_cert=Path("cert"), tls_key_password_file=secret_file(tmp_path / "password"))
    assert tls is not None
    assert tls.key_password == SECRET


def test_files_of_secrets_may_be_named_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    secret_file(tmp_path / "key")
    secret_file(tmp_path / "token")
    file = Path("~/key")
    assert credentials_of({}, "shop", file, Path("~/token")) == Credentials("shop", SECRET, SECRET)
    tls = tls_of(tls_cert=Path("cert"), tls_key_password_file=file)
    assert tls is not None
    assert tls.key_password == SECRET
    with pytest.raises(click.BadParameter, match="file ~nobody-here/key: ~nobody-here is nobody's home"):
        secret_of("--secret-key-file", Path("~nobody-here/key"))


def test_a_command_gets_one_access(tmp_path: Path) -> None:
    got: list[tuple[Access, dict[str, Any]]] = []

    @click.command()
    @click.option("--cluster")
    @client_options
    def client(access: Access, **rest: Any) -> None:
        got.append((access, rest))

    key = secret_file(tmp_path / "key")
    given = ["-n", "h:1", "--access-key", "shop", "--secret-key-file", str(key), "--tls", "--namespace", "ns"]
    assert CliRunner().invoke(client, [*given, "--cluster", "c"]).exit_code == 0
    ((access, rest),) = got
    assert (access.namesrv, access.settings.namespace, access.settings.credentials) == ("h:1", "ns", USER)
    assert access.settings.tls == TlsSettings()
    assert rest == {"cluster": "c", "output": "table"}
    assert SECRET not in repr(access)


def test_commands_about_servers_have_no_namespace() -> None:
    @click.command()
    @server_options
    def server(access: Access, output: str) -> None: ...

    assert "No such option" in CliRunner().invoke(server, ["--namespace", "ns"]).output
    assert CliRunner().invoke(server, ["--tls"]).exit_code == 0


@pytest.mark.parametrize(
    ("remark", "option"),
    [("check signature failed", "--secret-key-file"), ("username cannot be null", "--access-key"), ("User:x", "--acc")],
)
def test_a_broker_s_refusal_advises_options(remark: str, option: str) -> None:
    text = in_options(str(BrokerError("h:1", 16, remark)))
    assert option in text
    assert "settings" not in text


# ---- servers that want TLS, a client's certificate and signatures ----


@dataclass(frozen=True)
class Secured:
    """The servers, and the options that open them."""

    cluster: FakeCluster
    options: Sequence[str]
    other_authority: Path

    def without(self, name: str) -> list[str]:
        at = self.options.index(name)
        return [*self.options[:at], *self.options[at + 2 :]]


def signed_only(_: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
    fields = {name: value for name, value in request.ext_fields.items() if name not in ("AccessKey", "Signature")}
    again = RemotingCommand.request(RequestCode(request.code), fields, request.body)
    RequestSigner(USER).sign(again)
    return None if again.ext_fields == request.ext_fields else refuse(request, 16, "check signature failed")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Pair:
    return authority.sign("server", "rocketmq.example")


@pytest.fixture
async def secured(authority: Authority, server: Pair, tmp_path: Path) -> AsyncIterator[Secured]:
    own = authority.sign("client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    options = {
        "--tls-ca": authority.file,
        "--tls-cert": own.certificate,
        "--tls-key": own.key,
        "--tls-server-name": "rocketmq.example",
        "--access-key": "shop",
        "--secret-key-file": secret_file(tmp_path / "key", SECRET + "\n"),
    }
    async with FakeCluster(topics={"ns%T": 2}, tls=context) as cluster:
        cluster.rules.append(signed_only)
        words = ["-n", cluster.namesrv, "--namespace", "ns"]
        for name, value in options.items():
            words += [name, str(value)]
        yield Secured(cluster, words, Authority(tmp_path, "other authority").file)


async def ringmq(*arguments: str, **environ: str) -> tuple[int, str, str]:
    """Status, output and errors of a command."""
    done = await asyncio.to_thread(partial(run_ringmq, *arguments, **environ))
    return done.returncode, done.stdout, done.stderr


async def test_messages_go_through_secured_servers(secured: Secured) -> None:
    status, out, err = await ringmq("produce", "T", "-m", "one", "-m", "two", *secured.options)
    assert (status, err) == (0, "")
    assert "T/a/" in out
    assert sum(len(queue) for (topic, _), queue in secured.cluster.broker.queues.items() if topic == "ns%T") == 2
    status, out, err = await ringmq("consume", "T", "-c", "2", "-g", "g", *secured.options)
    assert (status, sorted(out.split()), err) == (0, ["one", "two"], "")
    assert {group for group, _, _ in secured.cluster.broker.committed} == {"ns%g"}
    status, out, err = await ringmq("topic", "route", "T", *secured.options)
    assert (status, err) == (0, "")
    requests = [*secured.cluster.name_server.requests, *secured.cluster.broker.requests]
    assert {request.ext_fields.get("AccessKey") for request in requests} == {"shop"}


async def test_a_user_from_the_environment(secured: Secured) -> None:
    options = secured.without("--access-key")
    del options[options.index("--secret-key-file") :]
    environ = {"RINGMQ_ACCESS_KEY": "shop", "RINGMQ_SECRET_KEY": SECRET}
    assert (await ringmq("topic", "route", "T", *options, **environ))[0] == 0
    status, _, err = await ringmq("topic", "route", "T", *options, **environ | {"RINGMQ_SECRET_KEY": "wrong"})
    assert status == 1
    assert "--secret-key-file" in err


@pytest.mark.parametrize(
    ("option", "advice"), [("--tls-server-name", "set --tls-server-name"), ("--tls-ca", "an authority of --tls-ca")]
)
async def test_servers_that_are_not_trusted_get_nothing(secured: Secured, option: str, advice: str) -> None:
    options = [*secured.without(option), *(["--tls-ca", str(secured.other_authority)] if option == "--tls-ca" else [])]
    status, out, err = await ringmq("topic", "route", "T", *options)
    assert (status, out) == (1, "")
    assert advice in err
    assert "Traceback" not in err
    assert not secured.cluster.name_server.requests
