"""The secret of a hash table whose keys clients choose (native/src/base/name_hash.h, siphash.h)."""

import os
from typing import Any

from ringmq.native import ffi

SECRET_BYTES = 16


def table_secret() -> Any:
    """Return a new random `uint64_t[2]`. It may not get into logs, metrics or files."""
    secret = ffi.new("uint64_t[2]")
    ffi.buffer(secret)[:] = os.urandom(SECRET_BYTES)
    return secret
