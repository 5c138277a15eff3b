"""The offset file of a broadcasting member: stock's format, one member at a time, whole at any moment."""

import threading
import time
from pathlib import Path

import pytest

from ringmq.client import ConnectionSettings, Consumer
from ringmq.client.consuming.local_offsets import (
    LocalOffsetFile,
    OffsetFileError,
    decode_offsets,
    default_offset_file,
    encode_offsets,
)
from ringmq.remoting.message_queue import MessageQueue

ONE, TWO = MessageQueue("T", "a", 0), MessageQueue("T", "b", 1)
# as stock's LocalFileOffsetStore.persistAll writes it
STOCK = b'{\n\t"offsetTable":{{\n\t\t"brokerName":"b",\n\t\t"queueId":1,\n\t\t"topic":"T"\n\t}:7\n\t}\n}'


def opened(path: Path) -> LocalOffsetFile:
    file = LocalOffsetFile(path)
    file.open()
    return file


def test_the_format_is_stock_s() -> None:
    assert decode_offsets(STOCK) == {TWO: 7}
    assert encode_offsets({TWO: 7, ONE: 3}) == (
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:3,{"brokerName":"b","queueId":1,"topic":"T"}:7}}'
    )
    assert decode_offsets(b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:-1}}') == {}
    assert default_offset_file("g").parts[-4:-2] + default_offset_file("g").parts[-2:] == (
        ".rocketmq_offsets",
        default_offset_file("g").parts[-3],
        "g",
        "offsets.json",
    )
    assert default_offset_file("g").parts[-3].endswith("@DEFAULT")


def test_a_home_in_the_name_of_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = Consumer("T", broadcast=True, offset_file="~/offsets.json")._offset_file
    assert file is not None
    assert file.path == tmp_path / "offsets.json"
    with pytest.raises(ValueError, match="offset_file ~nobody-has-this-name/o: ~nobody-has-this-name is nobody's home"):
        Consumer("T", broadcast=True, offset_file="~nobody-has-this-name/o")


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "offsets.json"
    file = opened(path)
    file.put(ONE, 3)
    file.save()
    written = path.stat().st_mtime_ns
    file.put(ONE, 3)
    file.save()
    assert path.stat().st_mtime_ns == written, "nothing has changed, nothing is written"
    file.close()
    assert opened(path).offsets == {ONE: 3}
    assert not path.with_name("offsets.json.tmp").exists()


def test_only_one_member_has_the_file(tmp_path: Path) -> None:
    first = opened(tmp_path / "offsets.json")
    with pytest.raises(OffsetFileError, match="offset_file"):
        opened(tmp_path / "offsets.json")
    first.close()
    opened(tmp_path / "offsets.json").close()


def test_a_broken_file_falls_back_to_stock_s_copy_or_is_named(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b'{"offsetTable":{')
    with pytest.raises(OffsetFileError, match=r"offsets\.json.*remove the file"):
        opened(path)
    path.with_name("offsets.json.bak").write_bytes(STOCK)
    assert opened(path).offsets == {TWO: 7}


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OffsetFileError, match=str(tmp_path / "file")):
        opened(tmp_path / "file" / "offsets.json")


def test_what_is_put_while_the_file_is_written_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path / "offsets.json")
    file.put(ONE, 3)
    monkeypatch.setattr("os.fsync", lambda _: file.put(TWO, 9))
    file.save()
    monkeypatch.setattr("os.fsync", lambda _: None)
    file.save()
    file.close()
    assert opened(file.path).offsets == {ONE: 3, TWO: 9}


def test_saves_follow_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path / "offsets.json")
    writing, most = 0, 0

    def slow(_: int) -> None:
        nonlocal writing, most
        writing += 1
        most = max(most, writing)
        time.sleep(0.02)  # span: in which another save could begin
        file.put(TWO, most + writing)
        writing -= 1

    monkeypatch.setattr("os.fsync", slow)
    file.put(ONE, 3)
    threads = [threading.Thread(target=file.save) for _ in range(4)]
    for thread in threads:
        thread.start()
        file.put(ONE, thread.ident or 0)
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_namespace_has_a_file_of_its_own() -> None:
    """As stock's has, whose group has the namespace in its name."""
    files = [
        Consumer("T", group="g", broadcast=True, settings=ConnectionSettings(namespace=namespace))._offset_file
        for namespace in ("", "A")
    ]
    assert [file.path.parent.name for file in files if file is not None] == ["g", "A%g"]
