"""Bodies survive every algorithm; damaged, cut and hostile ones are refused with a reason."""

import zlib

import pytest

from ringmq.client.compression import (
    DECOMPRESSED_BYTES_MAX,
    DecompressionError,
    compress_body,
    decompress_body,
)
from ringmq.remoting.flags import Compression

BODY = b"the same words again and " * 400


@pytest.mark.parametrize("algorithm", list(Compression))
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(3 << 20)])
def test_round_trip(algorithm: Compression, body: bytes) -> None:
    compressed, bits = compress_body(body, algorithm)
    assert bits == 1 | algorithm << 8
    assert decompress_body(compressed, bits) == body


def test_old_clients_leave_the_type_bits_empty_and_mean_zlib() -> None:
    assert decompress_body(zlib.compress(BODY), 0x1) == BODY


def test_uncompressed_body_is_passed_through_whatever_the_type_bits_say() -> None:
    assert decompress_body(b"plain", 0x200) == b"plain"


@pytest.mark.parametrize("algorithm", list(Compression))
def test_a_body_cut_short_is_refused(algorithm: Compression) -> None:
    compressed, bits = compress_body(BODY, algorithm)
    with pytest.raises(DecompressionError):
        decompress_body(compressed[:-5], bits)


@pytest.mark.parametrize("algorithm", list(Compression))
def test_junk_is_refused(algorithm: Compression) -> None:
    with pytest.raises(DecompressionError):
        decompress_body(b"\x00\x01\x02junk" * 10, 1 | algorithm << 8)


@pytest.mark.parametrize("algorithm", list(Compression))
def test_a_small_body_that_expands_without_end_is_refused(algorithm: Compression) -> None:
    bomb, bits = compress_body(bytes(DECOMPRESSED_BYTES_MAX + 1), algorithm)
    with pytest.raises(DecompressionError, match="more than"):
        decompress_body(bomb, bits)


def test_unknown_type_bits_are_named() -> None:
    with pytest.raises(DecompressionError, match="0x701"):
        decompress_body(BODY, 0x701)
