"""Compression of bodies before a send and decompression after a pull, by the bits of a message's sysFlag.

Java's producer compresses bodies of 4096 bytes and more (zlib, level 5) and sets the type bits even for zlib. Old
clients write a type of 0, which means zlib too (`MessageSysFlag`, `CompressionType`). zstd and LZ4 need the packages
`zstandard` and `lz4`, which are imported on first use.
"""

import importlib
import zlib
from collections.abc import Callable
from typing import Any

from ringmq.remoting.flags import COMPRESSION_MASK, Compression, MessageSysFlag, compression_of, with_compression

COMPRESS_OVER_BYTES = 4096
COMPRESSION_LEVEL = 5
LEVELS = {Compression.ZLIB: (-1, 9), Compression.ZLIB_OLD: (-1, 9), Compression.ZSTD: (-131_072, 22)}
"""Least and greatest level. LZ4 has no levels here."""
DECOMPRESSED_BYTES_MAX = 64 << 20  # a body is at most 4 MiB when sent by a client; more than this is an attack
ZSTD_STEP_BYTES = 1024  # an RLE block of 4 bytes stands for up to 128 KiB
_ZSTD = ("zstandard", "zstandard")  # module, package
_LZ4 = ("lz4.frame", "lz4")
_PACKAGES: dict[int, tuple[str, str]] = {Compression.ZSTD: _ZSTD, Compression.LZ4: _LZ4}


class DecompressionError(ValueError):
    """A body marked as compressed cannot be decompressed, or is larger than 64 MiB afterwards."""


def compress_body(body: bytes, algorithm: Compression, level: int = COMPRESSION_LEVEL) -> tuple[bytes, int]:
    """Return (compressed body, its sysFlag bits)."""
    return _COMPRESSORS[algorithm](body, level), with_compression(0, algorithm)


def decompress_body(body: bytes, sys_flag: int) -> bytes:
    """Return the body as its sender gave it. A body without the sysFlag of compression is returned unchanged."""
    try:
        algorithm = compression_of(sys_flag)
    except ValueError as error:
        raise DecompressionError(f"unknown compression type in sysFlag 0x{sys_flag:x}") from error
    return body if algorithm is None else _DECOMPRESSORS[algorithm](body)


def check_codec(sys_flag: int) -> None:
    """Raise RuntimeError if a body with these bits needs a package that is not installed."""
    needed = _PACKAGES.get((sys_flag & COMPRESSION_MASK) >> 8)
    if sys_flag & MessageSysFlag.COMPRESSED and needed is not None:
        _optional(*needed)


def _optional(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RuntimeError(f"this needs the package {package}: pip install {package}") from error


def _compress_zstd(body: bytes, level: int) -> bytes:
    compressed: bytes = _optional(*_ZSTD).ZstdCompressor(level=level).compress(body)
    return compressed


def _compress_lz4(body: bytes, _level: int) -> bytes:  # level 0: the fast variant, which is what Java uses
    compressed: bytes = _optional(*_LZ4).compress(body)
    return compressed


def _decompress_zlib(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, DECOMPRESSED_BYTES_MAX)
    except zlib.error as error:
        raise DecompressionError(f"zlib: {error}") from error
    if not stream.eof:
        _refuse("zlib", len(plain))
    return plain


def _decompress_zstd(body: bytes) -> bytes:
    zstandard = _optional(*_ZSTD)
    stream = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    length = 0
    try:
        # the decompressor takes no output bound, so it is fed in steps that can expand to 32 MiB at most
        for start in range(0, len(body), ZSTD_STEP_BYTES):
            if stream.eof:
                break
            parts.append(stream.decompress(body[start : start + ZSTD_STEP_BYTES]))
            length += len(parts[-1])
            if length > DECOMPRESSED_BYTES_MAX:
                _refuse("zstd", length)
    except zstandard.ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from error
    if not stream.eof:
        _refuse("zstd", length)
    return b"".join(parts)


def _decompress_lz4(body: bytes) -> bytes:
    stream = _optional(*_LZ4).LZ4FrameDecompressor()
    try:
        plain: bytes = stream.decompress(body, DECOMPRESSED_BYTES_MAX)
    except (RuntimeError, EOFError) as error:
        raise DecompressionError(f"lz4: {error}") from error
    if not stream.eof:
        _refuse("lz4", len(plain))
    return plain


def _refuse(name: str, length: int) -> None:
    if length >= DECOMPRESSED_BYTES_MAX:
        raise DecompressionError(f"{name}: more than the limit of {DECOMPRESSED_BYTES_MAX} bytes when decompressed")
    raise DecompressionError(f"{name}: the body ends in the middle of the stream")


_COMPRESSORS: dict[Compression, Callable[[bytes, int], bytes]] = {
    Compression.ZLIB: zlib.compress,
    Compression.ZLIB_OLD: zlib.compress,
    Compression.ZSTD: _compress_zstd,
    Compression.LZ4: _compress_lz4,
}
_DECOMPRESSORS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.ZLIB: _decompress_zlib,
    Compression.ZLIB_OLD: _decompress_zlib,
    Compression.ZSTD: _decompress_zstd,
    Compression.LZ4: _decompress_lz4,
}
