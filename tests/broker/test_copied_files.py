"""Files of guests that slaves copy: what a master answers, and what a slave keeps."""

from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.replication.copied_files import CopiedFiles
from ringmq.broker.requests.request import Request
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.json_body import read_object
from tests.broker.fakes import START_MS, peer

DELAYS = RequestCode.GET_ALL_DELAY_OFFSET
TEXT = '{"offsetTable":{3:5}}'


def answer_of(files: CopiedFiles) -> bytes:
    answer: Any = dict(files.handlers())[DELAYS](Request(RemotingCommand.request(DELAYS), peer(1), START_MS))
    assert answer.code == 0
    return bytes(answer.body)


def file_of(root: Path) -> Path:
    (root / "config").mkdir(exist_ok=True)
    return root / "config" / "delayOffset.json"


def test_without_the_file_its_table_is_empty(tmp_path: Path) -> None:
    files = CopiedFiles(START_MS)
    files.load(tmp_path, is_slave=False)
    value = read_object(answer_of(files), "x")
    assert value["offsetTable"] == {}
    assert value["dataVersion"]["timestamp"] == START_MS


def test_a_master_answers_with_what_its_worker_has_written_last(tmp_path: Path) -> None:
    files = CopiedFiles(START_MS)
    file_of(tmp_path).write_text("{}")
    files.load(tmp_path, is_slave=False)
    file_of(tmp_path).write_text(TEXT)
    assert answer_of(files) == TEXT.encode()
    file_of(tmp_path).unlink()
    assert answer_of(files) == TEXT.encode(), "it is being replaced"


def test_a_slave_saves_what_its_master_has_and_its_own_checkpoint_goes(tmp_path: Path) -> None:
    own = [file_of(tmp_path).with_name(name) for name in ("ringmqDelayOffset.json", "ringmqDelayOffset.json.bak")]
    for path in own:
        path.write_text("{}")
    files = CopiedFiles(START_MS)
    files.load(tmp_path, is_slave=True)
    files.take(tmp_path, DELAYS, TEXT)
    assert file_of(tmp_path).read_text() == TEXT
    assert not [path for path in own if path.exists()]
    file_of(tmp_path).write_text("the slave's worker does not write it")
    assert answer_of(files) == TEXT.encode()


def test_a_text_that_could_not_be_saved_is_saved_by_the_next_pass(tmp_path: Path) -> None:
    files = CopiedFiles(START_MS)
    (tmp_path / "config").write_text("no folder")
    with pytest.raises(OSError):
        files.take(tmp_path, DELAYS, TEXT)
    (tmp_path / "config").unlink()
    files.take(tmp_path, DELAYS, TEXT)
    assert file_of(tmp_path).read_text() == TEXT
