"""Signing requests as RocketMQ's ACL wants it (spec remoting 9.1, `AclClientRPCHook`).

Signed are the values of all header fields in the order of their names, AccessKey and SecurityToken among them, and the
body behind them; not the code, the opaque and the flag.
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


class RequestSigner:
    """Signs requests with one user's credentials; for use by any number of connections and threads."""

    def __init__(self, credentials: Credentials) -> None:
        self._secret = credentials.secret_key.encode()
        self._own = {ACCESS_KEY: credentials.access_key}
        if credentials.security_token is not None:
            self._own[SECURITY_TOKEN] = credentials.security_token

    def sign(self, command: RemotingCommand) -> None:
        """Put the user and the signature into the command's ext fields. A command signed before is signed anew."""
        fields = command.ext_fields
        fields.update(self._own)
        digest = hmac.digest(self._secret, signed_content(fields, command.body), "sha1")
        fields[SIGNATURE] = base64.b64encode(digest).decode()


def signed_content(ext_fields: Mapping[str, str], body: bytes) -> bytes:
    """What is signed: the values by the order of their names, without the signature itself, then the body."""
    values = [value for name, value in sorted(ext_fields.items()) if name != SIGNATURE]
    return "".join(values).encode("utf-8", "replace") + body
