"""Handles of delayed messages, by which they are taken back. No IO."""

import base64
import binascii

HANDLE_BYTES_MAX = 4096
_VERSION = "v1"
_PARTS = 5  # version, topic, broker name, time of delivery, UNIQ_KEY


def broker_of_handle(handle: str) -> str:
    """The name of the broker that gave the handle (`RecallMessageHandle`). Raises ValueError."""
    if len(handle) > HANDLE_BYTES_MAX:
        raise ValueError(f"recall handle of {len(handle)} characters is over the limit of {HANDLE_BYTES_MAX}")
    try:
        parts = base64.urlsafe_b64decode(handle.encode()).decode().split(" ")
    except (binascii.Error, UnicodeError) as error:
        raise ValueError(f"recall handle {handle[:64]!r} does not read: {error}") from error
    if len(parts) < _PARTS or parts[0] != _VERSION:
        raise ValueError(f"recall handle {handle[:64]!r} is none of version {_VERSION}")
    return parts[2]
