"""Structs of the C core as types of numpy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ringmq.native import ffi


def struct_type(struct: str, fields: Mapping[str, str]) -> np.dtype[Any]:
    """Return the type of a struct, with some of its fields. Names -> formats, such as `<u4` or `32<u4` of an array."""
    return np.dtype(
        {
            "names": list(fields),
            "formats": list(fields.values()),
            "offsets": [ffi.offsetof(struct, name) for name in fields],
            "itemsize": ffi.sizeof(struct),
        }
    )
