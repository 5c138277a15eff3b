"""Files with a checksum: no flipped bit gives other content."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from ringmq.store.config_files import ConfigFileError, persist_text
from ringmq.store.sealed_files import load_sealed, persist_sealed, sealed_text

NAME = "ringmqTimer.json"
VALUE = {"openMs": 1_700_000_000_000, "known": (5, 7), "marksFrom": None, "waits": False, "table": {"1": 5}}


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert load_sealed(tmp_path, NAME) == {}
    persist_sealed(tmp_path, NAME, VALUE)
    assert load_sealed(tmp_path, NAME) == VALUE


@pytest.mark.parametrize("value", [VALUE, {}])
def test_the_checksum_is_the_last_entry_of_the_content(value: dict[str, Any]) -> None:
    text = json.dumps(value, separators=(",", ":"))
    assert sealed_text(value) == json.dumps({**value, "crc32": zlib.crc32(text.encode())}, separators=(",", ":"))


def test_no_flipped_bit_gives_other_content(tmp_path: Path) -> None:
    sound = sealed_text(VALUE).encode()
    path = tmp_path / "config" / NAME
    path.parent.mkdir()
    refused = 0
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found: dict[str, Any] = {}
        try:
            found = load_sealed(tmp_path, NAME)
        except ConfigFileError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            found = {key: found[key] for key in VALUE}
            assert found == VALUE, bytes(damaged)
    assert refused > 7 * len(sound)


def test_the_copy_before_stands_in_for_a_damaged_file(tmp_path: Path) -> None:
    persist_sealed(tmp_path, NAME, VALUE)
    persist_sealed(tmp_path, NAME, {**VALUE, "openMs": 2_000_000_000_000})
    path = tmp_path / "config" / NAME
    path.write_text(path.read_text().replace("2000000000000", "2000000000001"))
    told: list[str] = []
    assert load_sealed(tmp_path, NAME, told.append) == VALUE
    assert told == [
        f"{path}: its content does not agree with its checksum; {NAME}.bak is used in its place"
    ]  # fmt: skip
    path.with_name(f"{NAME}.bak").unlink()
    with pytest.raises(ConfigFileError, match="checksum"):
        load_sealed(tmp_path, NAME)


def test_a_file_of_an_earlier_version_counts(tmp_path: Path) -> None:
    persist_text(tmp_path, NAME, '{"openMs":5}')
    assert load_sealed(tmp_path, NAME) == {"openMs": 5}
