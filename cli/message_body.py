"""Bodies of messages for people and programs."""

from __future__ import annotations

import base64

from ringmq.cli.output import say
from ringmq.client.compression import DecompressionError, decompress_body
from ringmq.remoting.message import MessageExt


def plain_body(message: MessageExt) -> bytes:
    """Return the body as its sender gave it. One that cannot be decompressed is as stored, and stderr says why."""
    try:
        return decompress_body(message.body, message.sys_flag)
    except (DecompressionError, RuntimeError) as error:  # the second: a package is not installed
        say(f"the body is shown as it is stored, it cannot be decompressed: {error}", err=True)
        return message.body


def body_fields(body: bytes) -> dict[str, str]:
    """Return the field of JSON: `body`, or for bytes that are not UTF-8 `bodyBase64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}
