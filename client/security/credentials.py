"""The name and the secret that sign requests, and their sources."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringmq.client.security.files import expanded
from ringmq.remoting.named_files import open_named_file
from ringmq.remoting.properties_text import BadProperties, parse_properties

log = logging.getLogger("ringmq.client")

ACCESS_KEY_VARIABLE = "RINGMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE = "RINGMQ_SECRET_KEY"
SECURITY_TOKEN_VARIABLE = "RINGMQ_SECURITY_TOKEN"
CREDENTIALS_FILE_VARIABLE = "RINGMQ_CREDENTIALS_FILE"

FILE_BYTES_MAX = 65_536
VALUE_CHARS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user of a broker: `access_key` is the user's name, `secret_key` its password. Raises ValueError.

    Secret and token appear in no repr, and so in no log line and no traceback that prints the object.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, value in (("access_key", self.access_key), ("secret_key", self.secret_key)):
            check_value(name, value)
        if self.security_token is not None:
            check_value("security_token", self.security_token)

    @classmethod
    def from_file(cls, path: str | Path, *, must_be_private: bool = False) -> Credentials:
        """Read lines `accessKey=...`, `secretKey=...` and, optionally, `securityToken=...`.

        Lines `name: value` are accepted as well, so the `tools.yml` of stock's `mqadmin` works. Raises ValueError,
        which names the file and never shows a value. A file that every user of the host can read causes a warning, or
        an error with `must_be_private`.
        """
        path = expanded(path, "credentials file")
        data = read_secrets(path, "credentials file", must_be_private=must_be_private)
        try:
            values = {line.name: line.value.strip().strip("\"'") for line in parse_properties(data.decode("utf-8"))}
        except (BadProperties, UnicodeDecodeError):
            # the parser's words would quote the line
            raise ValueError(f"credentials file {path} is not a file of name=value lines") from None
        missing = [name for name in ("accessKey", "secretKey") if not values.get(name)]
        if missing:
            raise ValueError(f"credentials file {path} has no line {' and no line '.join(missing)}")
        return cls(values["accessKey"], values["secretKey"], values.get("securityToken") or None)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Credentials | None:
        """Return the credentials of the environment, None if no variable is set. Raises ValueError.

        The variables are RINGMQ_ACCESS_KEY and RINGMQ_SECRET_KEY (and RINGMQ_SECURITY_TOKEN), or
        RINGMQ_CREDENTIALS_FILE.
        """
        values = os.environ if environ is None else environ
        access_key, secret_key = values.get(ACCESS_KEY_VARIABLE), values.get(SECRET_KEY_VARIABLE)
        if access_key and secret_key:
            return cls(access_key, secret_key, values.get(SECURITY_TOKEN_VARIABLE) or None)
        if access_key or secret_key:
            missing = SECRET_KEY_VARIABLE if access_key else ACCESS_KEY_VARIABLE
            raise ValueError(f"environment: {missing} is not set, but its counterpart is; set both or none")
        file = values.get(CREDENTIALS_FILE_VARIABLE)
        return cls.from_file(file) if file else None


def read_secrets(path: Path, what: str, *, must_be_private: bool) -> bytes:
    """Return a file of secrets. Raises ValueError that names the file as `what` with its path."""
    try:
        with open_named_file(path) as file:
            data = file.read(FILE_BYTES_MAX + 1)
            readable_by_others = os.fstat(file.fileno()).st_mode & 0o004
    except OSError as error:
        raise ValueError(f"{what} {path} cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{what} {path} is over the limit of {FILE_BYTES_MAX} bytes")
    if readable_by_others:
        words = "can be read by every user of this host: chmod 600"
        if must_be_private:
            raise ValueError(f"{what} {path} {words}")
        log.warning("%s %s %s", what, path, words)
    return data


def check_value(name: str, value: str) -> None:
    """Raise ValueError or TypeError, which show the name alone, for an invalid key, secret or token."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be of type str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} is empty")
    if len(value) > VALUE_CHARS_MAX:
        raise ValueError(f"{name} has {len(value)} characters, the limit is {VALUE_CHARS_MAX}")
    if any(ord(char) < 0x20 for char in value):
        raise ValueError(f"{name} holds a control character (a line end from a file?)")
