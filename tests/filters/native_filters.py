"""Compiled conditions in the C core."""

from typing import Any

from ringmq.native import ffi, lib

VERDICTS = {
    lib.RMQ_FILTER_FALSE: "F",
    lib.RMQ_FILTER_TRUE: "T",
    lib.RMQ_FILTER_UNKNOWN: "N",
    lib.RMQ_FILTER_THROWS: "X",
}


class NativeProgram:
    """A program as a read worker has it: a copy of its own, verified."""

    def __init__(self, encoded: bytes) -> None:
        self._words = ffi.new("uint64_t[]", len(encoded) // 8 + 1)
        ffi.memmove(self._words, encoded, len(encoded))
        self.struct: Any = ffi.cast("struct rmq_filter_program *", self._words)
        self.error = int(lib.rmq_filter_verify(self.struct, len(encoded)))
        self.work = 0

    def verdict(self, properties: bytes) -> str:
        """T, F, N or X for the bytes of a properties string."""
        assert self.error == 0
        work = ffi.new("uint64_t *")
        result = lib.rmq_filter_evaluate(self.struct, properties, len(properties), work)
        self.work = int(work[0])
        return VERDICTS[result]


def properties_string(properties: dict[str, str]) -> bytes:
    """The stored form of properties."""
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in properties.items())
