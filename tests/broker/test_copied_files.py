"""Files of guests that slaves copy: what a master answers, and what a slave keeps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.replication.copied_files import CopiedFiles
from ringmq.broker.requests.request import Request
from ringmq.ipc.tenure import AS_MASTER, Tenure, TenureState
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.json_body import read_object
from tests.broker.fakes import START_MS, peer

SLAVE = Tenure(TenureState.SLAVE)
DELAYS = RequestCode.GET_ALL_DELAY_OFFSET
TEXT = '{"offsetTable":{3:5}}'


def answer_of(files: CopiedFiles) -> bytes:
    answer: Any = dict(files.handlers())[DELAYS](Request(RemotingCommand.request(DELAYS), peer(1), START_MS))
    assert answer.code == 0
    return bytes(answer.body)


def live(tenure: Tenure) -> LiveConfig:
    return LiveConfig(BrokerConfig(), SimpleNamespace(tenure=tenure.word))


def file_of(root: Path) -> Path:
    (root / "config").mkdir(exist_ok=True)
    return root / "config" / "delayOffset.json"


def test_without_the_file_its_table_is_empty(tmp_path: Path) -> None:
    files = CopiedFiles(START_MS, live(AS_MASTER))
    files.load(tmp_path)
    value = read_object(answer_of(files), "x")
    assert value["offsetTable"] == {}
    assert value["dataVersion"]["timestamp"] == START_MS


def test_a_master_answers_with_what_its_worker_has_written_last(tmp_path: Path) -> None:
    files = CopiedFiles(START_MS, live(AS_MASTER))
    file_of(tmp_path).write_text("{}")
    files.load(tmp_path)
    file_of(tmp_path).write_text(TEXT)
    assert answer_of(files) == TEXT.encode()
    file_of(tmp_path).unlink()
    assert answer_of(files) == TEXT.encode(), "it is being replaced"


def test_a_slave_saves_what_its_master_has_and_its_own_checkpoint_goes(tmp_path: Path) -> None:
    own = [file_of(tmp_path).with_name(name) for name in ("ringmqDelayOffset.json", "ringmqDelayOffset.json.bak")]
    for path in own:
        path.write_text("{}")
    files = CopiedFiles(START_MS, live(SLAVE))
    files.load(tmp_path)
    files.take(tmp_path, DELAYS, TEXT)
    assert file_of(tmp_path).read_text() == TEXT
    assert not [path for path in own if path.exists()]
    file_of(tmp_path).write_text("the slave's worker does not write it")
    assert answer_of(files) == TEXT.encode()


def test_a_promoted_slave_answers_with_what_its_worker_has_written(tmp_path: Path) -> None:
    state = live(SLAVE)
    files = CopiedFiles(START_MS, state)
    files.load(tmp_path)
    files.take(tmp_path, DELAYS, "{}")
    state.marks.tenure = AS_MASTER.word
    file_of(tmp_path).write_text(TEXT)
    assert answer_of(files) == TEXT.encode()


def test_a_text_that_could_not_be_saved_is_saved_by_the_next_pass(tmp_path: Path) -> None:
    files = CopiedFiles(START_MS, live(SLAVE))
    (tmp_path / "config").write_text("no folder")
    with pytest.raises(OSError):
        files.take(tmp_path, DELAYS, TEXT)
    (tmp_path / "config").unlink()
    files.take(tmp_path, DELAYS, TEXT)
    assert file_of(tmp_path).read_text() == TEXT
