"""Access of commands to a cluster: name servers, credentials, TLS and namespace.

One set of options for all commands becomes one `Access`. A secret is never an argument, since every user of the host
sees arguments. Secrets come from a file or from the environment.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ringmq.cli.output import output_option
from ringmq.client.security.credentials import (
    ACCESS_KEY_VARIABLE,
    SECRET_KEY_VARIABLE,
    SECURITY_TOKEN_VARIABLE,
    Credentials,
    check_value,
    read_secrets,
)
from ringmq.client.security.files import expanded
from ringmq.client.security.tls import TlsSettings
from ringmq.client.settings import ConnectionSettings

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path)

namesrv_option = click.option(
    "-n",
    "--namesrv",
    envvar="RINGMQ_NAMESRV",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="HOST:PORT[;HOST:PORT]",
    help="Name servers; also from RINGMQ_NAMESRV.",
)
namespace_option = click.option("--namespace", default="", metavar="NAME", help="Topics and groups of this namespace.")
_CREDENTIALS_OPTIONS = {
    "access_key": click.option("--access-key", metavar="USER", help="Sign requests; also from RINGMQ_ACCESS_KEY."),
    "secret_key_file": click.option(
        "--secret-key-file", type=_FILE, metavar="FILE", help="The user's secret; also from RINGMQ_SECRET_KEY."
    ),
    "security_token_file": click.option(
        "--security-token-file", type=_FILE, metavar="FILE", help="The user's token; also from RINGMQ_SECURITY_TOKEN."
    ),
    "credentials_file": click.option(
        "--credentials-file", type=_FILE, metavar="FILE",
        help="A file with lines accessKey=, secretKey= instead; also from RINGMQ_CREDENTIALS_FILE.",
    ),
}  # fmt: skip
_TLS_OPTIONS = {
    "tls": click.option("--tls", is_flag=True, help="Encrypt; each --tls-... option implies it."),
    "tls_ca": click.option("--tls-ca", type=_FILE, metavar="FILE", help="CA of the servers; default: the host's CAs."),
    "tls_cert": click.option("--tls-cert", type=_FILE, metavar="FILE", help="The client's certificate."),
    "tls_key": click.option("--tls-key", type=_FILE, metavar="FILE", help="The client's key, if not in the same file."),
    "tls_key_password_file": click.option(
        "--tls-key-password-file", type=_FILE, metavar="FILE", help="The key's password."
    ),
    "tls_server_name": click.option(
        "--tls-server-name", metavar="NAME", help="The name in the servers' certificates, if not their address."
    ),
    "tls_insecure": click.option("--tls-insecure", is_flag=True, help="Accept any certificate: for tests only."),
}
_OPTION_FOR = {
    "give credentials= to the settings": "give --access-key and --secret-key-file",
    "credentials= of the settings": "--secret-key-file",
    "the access key of the settings' credentials": "--access-key",
    "use settings without tls": "leave the --tls options out",
    "tls.ca_file": "--tls-ca",
    "tls.certificate_file": "--tls-cert",
    "tls.key_file": "--tls-key",
    "key_password": "--tls-key-password-file",
    "tls.server_name": "--tls-server-name",
    "tls.insecure_skip_verification": "--tls-insecure",
}
"""Advice in the SDK's errors -> the same advice in terms of options."""


@dataclass(frozen=True, slots=True)
class Access:
    """The name servers, and the settings of all connections."""

    namesrv: str
    settings: ConnectionSettings


def server_options(command: F) -> F:
    """Add the options to reach the servers, and `--output`, for commands about servers themselves: no namespace.

    The command gets `access: Access` and `output: str`.
    """
    return _with_access(command)


def client_options(command: F) -> F:
    """Add the options of `server_options` and `--namespace`, for commands about topics, groups and messages."""
    return _with_access(command, namespace_option)


def in_options(text: str) -> str:
    """Return an error of the SDK with the names of options in place of those of settings."""
    for setting, option in _OPTION_FOR.items():
        text = text.replace(setting, option)
    return text


def _with_access(command: F, *more: Callable[[Any], Any]) -> F:
    @functools.wraps(command)
    def wrapped(*args: Any, namesrv: str, namespace: str = "", **values: Any) -> Any:
        user = {name: values.pop(name) for name in _CREDENTIALS_OPTIONS}
        tls = {name: values.pop(name) for name in _TLS_OPTIONS}
        access = Access(namesrv, _settings(credentials_of(os.environ, **user), tls_of(**tls), namespace))
        return command(*args, access=access, **values)

    options = (namesrv_option, output_option, *more, *_CREDENTIALS_OPTIONS.values(), *_TLS_OPTIONS.values())
    decorated: Any = wrapped
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _settings(credentials: Credentials | None, tls: TlsSettings | None, namespace: str) -> ConnectionSettings:
    try:
        return ConnectionSettings(tls=tls, credentials=credentials, namespace=namespace)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--namespace") from error


def credentials_of(
    environ: Mapping[str, str],
    access_key: str | None = None,
    secret_key_file: Path | None = None,
    security_token_file: Path | None = None,
    credentials_file: Path | None = None,
) -> Credentials | None:
    """Return the credentials of the options, completed from `environ`. Raises click.UsageError."""
    single = access_key is not None or secret_key_file is not None or security_token_file is not None
    try:
        if credentials_file is not None:
            if single:
                raise click.UsageError(
                    "--credentials-file says everything: leave --access-key, --secret-key-file and "
                    "--security-token-file out"
                )
            return Credentials.from_file(credentials_file, must_be_private=True)
        if not single:
            return Credentials.from_environment(environ)
        user = environ.get(ACCESS_KEY_VARIABLE) if access_key is None else access_key
        if user is None:
            raise click.UsageError(f"the secret needs a user: give --access-key or {ACCESS_KEY_VARIABLE}")
        return Credentials(user, *_secrets(environ, secret_key_file, security_token_file))
    except ValueError as error:
        hint = "--access-key" if single else "--credentials-file" if credentials_file is not None else None
        raise click.BadParameter(str(error), param_hint=hint) from error


def _secrets(
    environ: Mapping[str, str], secret_key_file: Path | None, security_token_file: Path | None
) -> tuple[str, str | None]:
    """Return secret key and token. The environment's token belongs to the environment's secret alone."""
    token = None if security_token_file is None else secret_of("--security-token-file", security_token_file)
    if secret_key_file is not None:
        return secret_of("--secret-key-file", secret_key_file), token
    secret = environ.get(SECRET_KEY_VARIABLE)
    if not secret:
        raise click.UsageError(f"the user has no secret: give --secret-key-file or {SECRET_KEY_VARIABLE}")
    return secret, token or environ.get(SECURITY_TOKEN_VARIABLE) or None


def secret_of(option: str, path: Path) -> str:
    """Return the single line of a file that only its owner can read.

    Raises click.BadParameter, which shows no secret.
    """
    try:
        path = expanded(path, "file")
        data = read_secrets(path, "file", must_be_private=True)
        secret = data.decode().removesuffix("\n").removesuffix("\r")
        check_value(f"file {path}", secret)
    except UnicodeDecodeError:
        raise click.BadParameter(f"file {path} is not UTF-8 text", param_hint=option) from None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error
    return secret


def tls_of(
    tls: bool = False,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_key_password_file: Path | None = None,
    tls_server_name: str | None = None,
    tls_insecure: bool = False,
) -> TlsSettings | None:
    """Return the TLS settings, None without TLS. Raises click.UsageError.

    Certificates are read at the first connection.
    """
    if tls_key_password_file is not None and tls_cert is None:
        raise click.UsageError("--tls-key-password-file needs --tls-cert")
    given = (tls_ca, tls_cert, tls_key, tls_server_name)
    if not (tls or tls_insecure or any(value is not None for value in given)):
        return None
    password = None
    if tls_key_password_file is not None:
        password = secret_of("--tls-key-password-file", tls_key_password_file)
    try:
        return TlsSettings(tls_ca, tls_cert, tls_key, password, tls_server_name, tls_insecure)
    except ValueError as error:
        raise click.UsageError(in_options(str(error))) from error
