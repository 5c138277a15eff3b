"""Bit sets of the protocol (spec remoting 7.4, 7.9, 8.1): sysFlag of message, pull, topic and group, permissions."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class MessageSysFlag(IntFlag):
    """sysFlag of a message, on the wire and on disk."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300


TRANSACTION_MASK = 0xC
COMPRESSION_MASK = 0x700


class Compression(IntEnum):
    """Bits 8-10 of a message's sysFlag. Old clients leave 0 for zlib."""

    ZLIB_OLD = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression_of(sys_flag: int) -> Compression | None:
    """Return the compression of the body, None without one. Raises `ValueError` for an unknown type."""
    if not sys_flag & MessageSysFlag.COMPRESSED:
        return None
    return Compression((sys_flag & COMPRESSION_MASK) >> 8)


def with_compression(sys_flag: int, compression: Compression) -> int:
    """Return `sys_flag` marked as compressed. Clients write the type bits for zlib, too."""
    return sys_flag & ~COMPRESSION_MASK | MessageSysFlag.COMPRESSED | compression << 8


def without_compression(sys_flag: int) -> int:
    """Return `sys_flag` of the decompressed message."""
    return sys_flag & ~(COMPRESSION_MASK | MessageSysFlag.COMPRESSED)


def transaction_type(sys_flag: int) -> int:
    """Return 0, PREPARED, COMMIT or ROLLBACK."""
    return sys_flag & TRANSACTION_MASK


class PullSysFlag(IntFlag):
    """sysFlag of a pull request."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class Perm(IntFlag):
    """Permissions of a topic or a broker."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


PERM_READ_WRITE = Perm.READ | Perm.WRITE


class TopicSysFlag(IntFlag):
    """Unit flags of a topic. A group knows bit 0 only."""

    UNIT = 1
    UNIT_SUB = 2
