"""Handles of delayed messages, by which they are recalled. No IO."""

import base64
import binascii

from ringmq.remoting.client_headers import RecallMessageRequestHeader

HANDLE_BYTES_MAX = 4096
_VERSION = "v1"
_PARTS = 5  # version, topic, broker name, time of delivery, UNIQ_KEY


def broker_of_handle(handle: str) -> str:
    """Return the name of the broker that made the handle (`RecallMessageHandle`). Raises ValueError."""
    if len(handle) > HANDLE_BYTES_MAX:
        raise ValueError(f"recall handle of {len(handle)} characters is over the limit of {HANDLE_BYTES_MAX}")
    try:
        parts = base64.urlsafe_b64decode(handle.encode()).decode().split(" ")
    except (binascii.Error, UnicodeError) as error:
        raise ValueError(f"recall handle {handle[:64]!r} cannot be decoded: {error}") from error
    if len(parts) < _PARTS or parts[0] != _VERSION:
        raise ValueError(f"recall handle {handle[:64]!r} is not of version {_VERSION}")
    return parts[2]


def recall_fields(group: str, topic: str, handle: str) -> tuple[str, dict[str, str]]:
    """Return the broker that made the handle, and the fields of the recall request. Raises ValueError."""
    broker_name = broker_of_handle(handle)
    header = RecallMessageRequestHeader(producer_group=group, topic=topic, recall_handle=handle)
    return broker_name, {**header.encode(), "bname": broker_name}
