"""Signatures of requests for RocketMQ's ACL (spec remoting 9.1, `AclClientRPCHook`).

The signature covers the values of all header fields in the order of their names, AccessKey and SecurityToken among
them, followed by the body. It does not cover the code, the opaque and the flag.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

from ringmq.client.security.credentials import Credentials
from ringmq.remoting.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
_SIGNATURE_HEAD = b"\0\x09Signature"


class RequestSigner:
    """Signs requests with one user's credentials. Any number of connections and threads may share it."""

    def __init__(self, credentials: Credentials) -> None:
        self._secret = credentials.secret_key.encode()
        self._own = {ACCESS_KEY: credentials.access_key}
        if credentials.security_token is not None:
            self._own[SECURITY_TOKEN] = credentials.security_token
        self._own_values = "".join(self._own.values()).encode()
        self._own_entries = b"".join(_entry(name, value) for name, value in self._own.items())

    def sign(self, command: RemotingCommand) -> None:
        """Put the user and the signature into the command's ext fields. A signed command is signed again."""
        fields = command.ext_fields
        fields.update(self._own)
        fields[SIGNATURE] = self._signature(signed_content(fields, command.body)).decode()

    def entries(self, values: bytes, body: bytes | bytearray | memoryview) -> bytes:
        """Return the additions of `sign` as entries of a binary header.

        `values` are those of all other fields in the order of their names. These names begin with small letters, so
        they follow the signer's own.
        """
        signature = self._signature(b"".join((self._own_values, values, body)))
        return b"%b%b%b" % (self._own_entries, _SIGNATURE_HEAD, len(signature).to_bytes(4, "big") + signature)

    def _signature(self, content: bytes) -> bytes:
        return base64.b64encode(hmac.digest(self._secret, content, "sha1"))


def signed_content(ext_fields: Mapping[str, str], body: bytes) -> bytes:
    """Return the signed content: the values in the order of their names, without the signature, then the body."""
    values = [value for name, value in sorted(ext_fields.items()) if name != SIGNATURE]
    return "".join(values).encode("utf-8", "replace") + body


def _entry(name: str, value: str) -> bytes:
    name_bytes, value_bytes = name.encode(), value.encode()
    return b"".join((len(name_bytes).to_bytes(2, "big"), name_bytes, len(value_bytes).to_bytes(4, "big"), value_bytes))
