"""Config files: golden texts written again byte for byte, `.bak`, damaged and odd input."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringmq.fastjson import reader
from ringmq.fastjson.reader import DEPTH_MAX, FastJsonError, read_config, read_json
from ringmq.fastjson.writer import write_config
from ringmq.store.config_files import (
    ConfigFileError,
    encode_config,
    load_config,
    persist_config,
    persist_text,
    save_damaged_copy,
)

JSON_FILES = [
    "topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json",
    "consumerOrderInfo.json", "messageRequestMode.json", "timermetrics", "transactionMetrics",
]  # fmt: skip


@pytest.mark.parametrize("name", JSON_FILES)
def test_golden_text_round_trip(golden_basic: Path, name: str) -> None:
    for path in (golden_basic / "config" / name, golden_basic / "config" / f"{name}.bak"):
        if path.exists():
            assert encode_config(name, read_config(path.read_text("utf-8"))) == path.read_text("utf-8")


def test_the_example_of_integer_keys() -> None:
    value = {
        "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 1700000000000},
        "groupTopicMap": {"G": ("T",)},
        "offsetTable": {"T@G": {0: 10, 1: 20}},
    }
    assert write_config(value) == (
        '{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
        '\t"groupTopicMap":{\n\t\t"G":["T"]\n\t},\n\t"offsetTable":{\n\t\t"T@G":{0:10,1:20\n\t\t}\n\t}\n}'
    )


def test_bare_keys_are_numbers() -> None:
    assert read_config('{"0":1, "12" : 5}') == {"0": 1, "12": 5}
    assert read_config("{0:1,12:5\n}") == {0: 1, 12: 5}


def test_strings_survive() -> None:
    for text in ('quo"te\\', "tab\tline\n\x00\x1f", "schlüssel 键 😀", "\u2028\x7f\x85"):
        assert read_config(write_config({text: text})) == {text: text}


def test_fastjsons_own_escapes_are_read() -> None:
    for read in (read_json, read_config):
        assert read(r"""{"\v\\v":"it\'s \u0041"}""") == {"\v\\v": "it's A"}
        with pytest.raises(FastJsonError, match="bad escape"):
            read(r'{"\v":"\q"}')


NUMBERS = (
    "0",
    "-0",
    "1.5",
    "-1.5e3",
    "1e400",
    "+1",
    "1.",
    "01",
    "9" * 400,
    "9" * 401,
    "0." + "9" * 401,
    "NaN",
    "-Infinity",
)
OTHERS = (
    "true",
    "null",
    '""',
    '"a b"',
    r'"\u0041\ud800"',
    r'"\v"',
    '"\t"',
    '"\x00"',
    "[]",
    "[1]",
    "[\n1]",
    "{}",
    "{0:1}",
)
TEXTS = st.recursive(
    st.sampled_from([*NUMBERS, *OTHERS]),
    lambda inner: st.lists(st.tuples(st.sampled_from(['"a"', '"b"', "0", '"0"', '"["']), inner), max_size=4).map(
        lambda pairs: "{" + ",".join(f"{key} :\n{value}" for key, value in pairs) + "}"
    ),
    max_leaves=8,
)


def told(read: Callable[[str], object], text: str) -> str:
    """The value with its types, or the error."""
    try:
        return repr(read(text))
    except FastJsonError as error:
        return f"refused: {error}"


@given(text=TEXTS, at=st.integers(0, 60), put=st.sampled_from(["", ",", "}", "{", '"', "\x01", " ", "\ufeff", "x"]))
@example(text='{"a":' * (DEPTH_MAX + 1) + "{}" + "}" * (DEPTH_MAX + 1), at=0, put="")
@example(text='{"a":' * DEPTH_MAX + "{}" + "}" * DEPTH_MAX, at=0, put="")
@example(text='{"a":' * (DEPTH_MAX + 1) + "1" + "}" * (DEPTH_MAX + 1), at=0, put="")
@example(text='{"a":' * 5000, at=0, put="")
def test_standard_text_is_read_as_by_the_reader_of_the_dialect(text: str, at: int, put: str) -> None:
    text = text[:at] + put + text[at:]
    assert told(read_config, text) == told(lambda text: reader._read(reader._ConfigReader(text)), text)


def test_nulls_are_left_out() -> None:
    assert write_config({"a": None, "b": 1}, pretty=False) == '{"b":1}'
    assert write_config({"a": None}) == "{}"


DAMAGED = [
    "", "{", '{"a"', '{"a":', '{"a":1', '{"a":1 "b":2}', "{true:1}", '{"a":nope}', '{"a":"x', '{"a":"\\q"}', "[1,2",
    "{}x", "[" * 100,
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_text_is_refused_with_a_place(text: str) -> None:
    with pytest.raises(FastJsonError, match=r"character|ends"):
        read_config(text)


def nested(levels: int) -> object:
    value: object = 1
    for level in range(levels):
        value = {"a": value} if level % 3 else [value] if level % 2 else (value,)
    return value


@pytest.mark.parametrize("pretty", [True, False])
def test_what_is_written_can_be_read(pretty: bool) -> None:
    deepest = write_config(nested(DEPTH_MAX), pretty=pretty)
    assert read_config(deepest)
    with pytest.raises(FastJsonError, match="64 levels"):
        write_config(nested(DEPTH_MAX + 1), pretty=pretty)


def test_persist_keeps_the_old_file_as_bak(tmp_path: Path) -> None:
    persist_config(tmp_path, "topics.json", {"a": 1})
    persist_config(tmp_path, "topics.json", {"a": 2})
    assert load_config(tmp_path, "topics.json") == {"a": 2}
    assert read_config((tmp_path / "config" / "topics.json.bak").read_text()) == {"a": 1}


def test_any_text_can_be_written(tmp_path: Path) -> None:
    persist_text(tmp_path, "topics.json", '{"\ud800":"\udfffb"}')
    assert load_config(tmp_path, "topics.json") == {"?": "?b"}


def test_a_full_disk_touches_neither_of_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    persist_config(tmp_path, "consumerOffset.json", {"a": 1})
    persist_config(tmp_path, "consumerOffset.json", {"a": 2})

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                persist_config(tmp_path, "consumerOffset.json", {"a": 3})
    assert load_config(tmp_path, "consumerOffset.json") == {"a": 2}
    assert read_config((tmp_path / "config" / "consumerOffset.json.bak").read_text()) == {"a": 1}


@pytest.mark.parametrize("damage", [b"", b"  \n", b'{"a":', b"\xff\xfe", b"[1]", None])
def test_bak_is_loaded_when_the_file_is_no_good(tmp_path: Path, damage: bytes | None) -> None:
    persist_config(tmp_path, "topics.json", {"a": 1})
    persist_config(tmp_path, "topics.json", {"a": 2})
    path = tmp_path / "config" / "topics.json"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert load_config(tmp_path, "topics.json") == {"a": 1}


def test_missing_files_are_an_empty_table_and_two_damaged_ones_an_error(tmp_path: Path) -> None:
    assert load_config(tmp_path, "topics.json") == {}
    (tmp_path / "config").mkdir()
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).write_text("{")
    with pytest.raises(ConfigFileError, match=r"topics.json.*topics.json.bak"):
        load_config(tmp_path, "topics.json")


def test_a_damaged_file_is_kept_beside_and_no_older_copy_is_lost(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "topics.json"
    assert save_damaged_copy(tmp_path, "topics.json") is None
    kept = []
    for text in ("first", "second", "first"):
        path.write_text(text)
        kept.append(save_damaged_copy(tmp_path, "topics.json"))
    assert kept == [path.with_name("topics.json.damaged"), path.with_name("topics.json.damaged.2"), kept[0]]
    assert [copy.read_text() for copy in kept[:2] if copy] == ["first", "second"]


def test_it_is_told_that_the_bak_is_used(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{")
    (tmp_path / "config" / "topics.json.bak").write_text('{"a":1}')
    lines: list[str] = []
    assert load_config(tmp_path, "topics.json", lines.append) == {"a": 1}
    assert len(lines) == 1 and "topics.json.bak is used" in lines[0]
