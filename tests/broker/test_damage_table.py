"""Every kind of file of a store under twelve kinds of damage: the outcome of a start.

The rows are the files, the columns `KINDS` of the kit. The store of the log's files has stopped cleanly. Each refusal
names one command, which is run as it is printed, until the store serves.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.broker import server
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.config.run_config import store_config
from ringmq.broker.start_error import StartError
from ringmq.broker.start_files import check_kv_config, check_own_files, take_plane_name
from ringmq.broker.tables.loading import load_into
from ringmq.cli.main import main
from ringmq.doctor.gather_store import gather_store
from ringmq.ipc.segment import plane_name, renew_plane_name
from ringmq.services.delay.progress import stock_offsets
from ringmq.store import markers
from ringmq.store.config_files import ConfigFileError, load_config, persist_config
from ringmq.store.index_file import IndexFile, header_end_offset, index_paths
from ringmq.store.pending_deletions import read_deletions
from ringmq.store.queue_ends import write_rebuild
from ringmq.store.recovery import recover
from ringmq.store.recovery_state import RecoveredStore
from ringmq.store.sealed_files import load_sealed, sealed_text
from ringmq.store.store_format import write_format
from ringmq.store.store_lock import StoreLockedError
from ringmq.store.store_task import TASK_FILE
from ringmq.store.topic_start_offsets import read_start_offsets
from ringmq.store.write_hold import read_hold
from tests.broker.fakes import FakePlane
from tests.store.advice_kit import GIVEN_UP, Refused, command_in, follow, given_up, started_by_advice
from tests.store.conftest import _crashed_stores  # noqa: F401
from tests.store.damage_kit import KINDS, leave_bounds, messages, messages_after, one_bit, unreadable
from tests.store.golden_stores import crashed_config
from tests.suite.samples import Sampled

SETTINGS = {
    "mappedFileSizeCommitLog": "262144", "mappedFileSizeConsumeQueue": "6000", "maxHashSlotNum": "100",
    "maxIndexNum": "400", "mapperFileSizeBatchConsumeQueue": "4600",
}  # fmt: skip
SIZES = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
NOBODY = 65534
KINDS_OF_A_SAMPLE = 5
HANG_S = 60

KEPT, SAID, REFUSED, CUT = "=", "s", "r", "c"
"""Nothing is missing and nothing is said; made again or left out, with a line that names the file; refused with file
and remedy; the log ends earlier, with a line, and other bytes than zeros are in `ringmq.cut`."""


def damaged(row: str) -> Callable[[Path], Path]:
    """Return the function that finds the row's file in a store."""
    folder, _, number = row.partition("#")
    if not number:
        return lambda root: root / row
    return lambda root: sorted(path for path in (root / folder).iterdir() if path.stat().st_size)[int(number)]


def start(root: Path, lines: list[str]) -> RecoveredStore:
    """The steps of a start that read or write files of the store, in one process."""
    config = changed(BrokerConfig(), SETTINGS | {"storePathRootDir": str(root)})
    lock = server.take_lock(root)
    try:
        server.check_stock_store(config)
        check_own_files(root, is_slave=False)
        check_own_files(root, is_slave=True)
        check_kv_config(root, {})
        take_plane_name(root)
        server.perform_store_task(config)
        recovered = server.recover_store(config, lambda step: None, unknown_topics_from=None)
        with server.no_segments_left(plane_name(root)):
            load_into(FakePlane(), config, recovered, lines.append)  # type: ignore[arg-type]
            read_hold(root)
        for load in WORKERS_READ:
            try:
                load(root)
            except (ConfigFileError, OSError) as error:  # the worker logs it and goes on
                lines.append(str(error))
        server.leave_marks(SimpleNamespace(name=plane_name(root)), root, "broker-b", recovered)  # type: ignore[arg-type]
        lines += recovered.reasons
        return recovered
    finally:
        lock.close()


SEALED = ("ringmqDelayOffset.json", "ringmqStagedWrites.json", "ringmqTimer.json", "ringmqMasterTimers.json")
WORKERS_READ: tuple[Callable[[Path], object], ...] = (
    read_deletions,
    read_start_offsets,
    lambda root: stock_offsets(root, 18),
    *(partial(load_sealed, name=name) for name in SEALED),
)

CONFIG_FILES: dict[str, Any] = {
    "subscriptionGroup.json": {"subscriptionGroupTable": {"g": {"groupName": "g"}}},
    "consumerOffset.json": {"offsetTable": {"CrashA@g": {"0": 7}}},
    "delayOffset.json": {"offsetTable": {"1": 5}},
    "ringmqDelayOffset.json": {"logOffset": 0, "tail": [0, 0], "offsets": {"1": 5}},
    "ringmqStagedWrites.json": {"version": 1, "replayFrom": 0, "queries": []},
    "ringmqTimer.json": {"openMs": 1_700_000_000_000, "queueOffset": 0, "logOffset": 0, "tail": [0, 0]},
    "ringmqMasterTimers.json": {"openMs": 1_700_000_000_000, "knownOffset": 0, "logOffset": 0, "marksFrom": 0},
    "ringmqDeletions.json": ["Gone"],
    "ringmqTopicBirths.json": {"Gone": 500_000},
    "ringmqWriteHold.json": [
        {"broker_id": 1, "address": "h:1", "common_offset": 1, "master_offset": 2, "slave_offset": 3}
    ],
    "ringmqClientNames.json": {"topics": ["CrashA"], "groups": []},
    "ringmqSlaveCommits.json": [["g", "CrashA", 0]],
    "kvConfig.json": {"configTable": {"n": {"k": "v"}}},
    "topicQueueMapping.json": {"topicQueueMappingInfoMap": {}},
    "consumerFilter.json": {"filterDataByTopic": {}},
    "consumerOrderInfo.json": {"table": {}},
}
ALONE = {
    "abort": "5 ringmq",
    "ringmq.failed": "I/O error",
    "ringmq.rebuild": "262144",
    f"config/{TASK_FILE}": json.dumps({"action": "cut", "offset": 1 << 40}),
}
"""Files of a single row each: they change how the store is read."""


@pytest.fixture(scope="module")
def sound(_crashed_stores: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """A store with every kind of file after a clean stop, and beside it `older` with an older copy of each file."""
    top = tmp_path_factory.mktemp("sound")
    root = top / "store"
    shutil.copytree(next(path for path in _crashed_stores.rglob("crash-kill9") if path.is_dir()), root)
    recover(crashed_config(root))
    (root / "abort").unlink()
    config = root / "config"
    for name, value in CONFIG_FILES.items():
        (config / name).write_text(sealed_text(value) if name in SEALED else json.dumps(value))
    topics = load_config(root, "topics.json")
    topics["topicConfigTable"].setdefault("CrashA", {"topicName": "CrashA", "perm": 6})
    persist_config(root, "topics.json", topics)
    (config / "brokerName").write_text("broker-a")
    (config / "timercheck").write_bytes(bytes(4096))
    for name in ("timerwheel", "timerlog"):
        (root / name).write_bytes(bytes(range(200)))
    leave_bounds(crashed_config(root))
    renew_plane_name(root)
    markers.write_boot_marker(root)
    write_format(root, lambda: "test")
    shutil.copytree(root, top / "older")
    for path in (top / "older").rglob("*"):
        if path.is_file() and path.parent != top / "older" / "config":
            data = path.read_bytes()
            path.write_bytes(data[: len(data.rstrip(b"\0")) // 2].ljust(len(data), b"\0"))
    for path in index_paths(root / "index"):
        shutil.copyfile(path, top / "older" / "index" / path.name)
    for path in index_paths(top / "older" / "index"):
        IndexFile(path, 100, 400, writable=True).truncate(header_end_offset(path) - 1000)
    older = load_config(root, "topics.json")
    del older["topicConfigTable"]["CrashA"]
    (top / "older" / "config" / "topics.json").write_text(json.dumps(older))
    (top / "older" / "config" / "topics.json.bak").write_text(json.dumps(older))
    (config / "topics.json.bak").write_text(json.dumps(older))
    return root


@contextlib.contextmanager
def without_a_hang() -> Iterator[None]:
    """Fail if a file keeps the start waiting for ever."""

    def give_up(number: int, frame: object) -> None:
        raise AssertionError("the start waits for a file")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def without_rights(root: Path) -> Iterator[None]:
    """Run as a user for whom modes count, who owns the store."""
    if os.geteuid():
        yield
        return
    for path in (root, *root.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def outcome(root: Path, path: Path, before: dict[Any, int], is_log: bool) -> tuple[str, str]:
    """Start the store and return one of the outcomes, with what was said. Checks that no message is lost."""
    lines: list[str] = []
    try:
        with without_a_hang():
            found = start(root, lines)
    except (StartError, StoreLockedError) as error:
        text = str(error)
        assert path.name in text, f"a refusal does not name {path.name}: {text}"
        check_advice(root, before)
        return REFUSED, text
    after = messages_after(crashed_config(root), found)
    kept = {place: at for place, at in before.items() if found.min_offset <= at < found.append_offset}
    if is_log:
        lost = kept.keys() - after.keys()
        assert not lost or "stays" in " ".join(lines), f"{len(lost)} messages of a sound part of the log are lost"
    else:
        assert after == before, f"{len(before.keys() - after.keys())} messages of a sound log are lost"
    text = "; ".join(lines)
    if is_log and len(kept) < len(before):
        assert "the log" in text, "a loss without a line"
        return CUT, text
    return (SAID if lines else KEPT), text


def check_advice(root: Path, before: dict[Any, int], *, is_queue_lost: bool = False) -> None:
    """Follow the advice until the store serves. Only messages that a repair has named are missing then.

    A lost queue names none of them.
    """

    def started() -> RecoveredStore:
        try:
            return start(root, [])
        except (StartError, StoreLockedError) as error:
            raise Refused(str(error)) from error

    steps: list[str] = []
    found = started_by_advice(started, steps)
    after = messages_after(crashed_config(root), found)
    missing = [at for place, at in before.items() if place not in after]
    lost = given_up(steps)
    assert all(any(first <= at < end for first, end in lost) for at in missing), steps
    named = sum(int(row[3]) for text in steps for row in GIVEN_UP.findall(text))
    assert named == len(missing) or (is_queue_lost and 0 < named < len(missing)), steps


TABLE = {
    # missing, empty, truncated, too long, garbage, one bit, zeros, wrong type, older copy, unreadable, nested, pipe
    "commitlog#0": "c r r r = = = r = = r r",
    "commitlog#-1": "r r r r c s c r c r r r",
    "consumequeue/CrashA/0#0": "s s s s s s s s s r s s",
    "consumequeue/CrashA/0#-1": "s s s s s s s s s r s s",
    "index#0": "s s s s s = s s s r s s",
    "index#-1": "s s s s s = s s s r s s",
    "checkpoint": "= = = = s s = r = r s r",
    "lock": "= = = = = = = r = r = r",
    "ringmq.boot": "= = = = = = = r = r = r",
    "ringmq.format": "= r = = r = r r = r r r",
    "ringmq.queues": "= = = = = = = = = r = r",
    "ringmq.shm": "= = = = = = = r = = = =",
    "timerwheel": "= = = = = = = = = = = =",
    "timerlog": "= = = = = = = = = = = =",
    "config/topics.json": "s s s s s = s r = r s r",
    "config/topics.json.bak": "= = = = = = = = = = = =",
    "config/brokerName": "= = = = = = = r = r = r",
    "config/timercheck": "= = = = = = = = = = = =",
    "config/subscriptionGroup.json": "s s r r r = r r = r r r",
    "config/consumerOffset.json": "= = r r r r r r = r r r",
    "config/delayOffset.json": "= = s s s = s s = s s s",
    "config/ringmqDelayOffset.json": "= = s s s s s s = s s s",
    "config/ringmqStagedWrites.json": "= = s s s s s s = s s s",
    "config/ringmqTimer.json": "= = s s s s s s = s s s",
    "config/ringmqMasterTimers.json": "= = s s s s s s = s s s",
    "config/ringmqDeletions.json": "= r r r r r r r = r r r",
    "config/ringmqTopicBirths.json": "= r r r r = r r = r r r",
    "config/ringmqWriteHold.json": "= r r r r = r r = r r r",
    "config/ringmqClientNames.json": "= r r r r r r r = r r r",
    "config/ringmqSlaveCommits.json": "= r r r r r r r = r r r",
    "config/kvConfig.json": "= r r r r = r r = r r r",
    "config/topicQueueMapping.json": "= = r r r = r r = r r r",
    "config/consumerFilter.json": "= = = = = = = = = = = =",
    "config/consumerOrderInfo.json": "= = = = = = = = = = = =",
    "abort": "= = = = = = = r = r = r",
    "ringmq.failed": "= s s s s s s r = r s r",
    "ringmq.rebuild": "= = = = = = = r = r = r",
    "config/haOrder.json": "= r r r r r r r = r r r",
}


@pytest.mark.parametrize("row", TABLE)
def test_each_damage_has_its_outcome(sound: Path, row: str, sampled: Sampled) -> None:
    before = messages(crashed_config(sound))
    columns = sampled(list(zip(KINDS, TABLE[row].split(), strict=True)), KINDS_OF_A_SAMPLE)
    outcomes, said = [], []
    for damage, _ in columns:
        folder = Path(tempfile.mkdtemp())
        try:
            folder.chmod(0o755)
            root = folder / "store"
            shutil.copytree(sound, root, symlinks=True)
            if row in ALONE:
                (root / row).write_text(ALONE[row])
            path = damaged(row)(root)
            damage(path, sound.parent / "older" / path.relative_to(root))
            with without_rights(root) if damage is unreadable else contextlib.nullcontext():
                result, text = outcome(root, path, before, row.startswith("commitlog"))
        finally:
            shutil.rmtree(folder)
        outcomes.append(result)
        said.append(f"{damage.__name__}: {result} {text}")
    assert outcomes == [wanted for _, wanted in columns], "\n".join(said)


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def _next_made(root: Path, paths: list[Path]) -> None:
    """The file behind the newest used one, as a broker makes it in advance."""
    with (root / "commitlog" / f"{int(paths[-1].name) + FILE_BYTES:020d}").open("wb") as file:
        file.truncate(FILE_BYTES)


def _killed(root: Path) -> None:
    markers.write_abort(root, 1)
    markers.write_boot_marker(root)


def _repaired_before(root: Path) -> None:
    """A repair has moved the files of a queue away, and no start has made them again yet."""
    shutil.rmtree(root / "consumequeue" / "CrashA" / "0")
    write_rebuild(root, 0)


FILE_BYTES = int(SETTINGS["mappedFileSizeCommitLog"])
LOG_DAMAGES: dict[str, Callable[[Path, list[Path]], object]] = {
    "newest": lambda root, paths: _unlink(paths[-1:]),
    "newest, the next is made": lambda root, paths: (_next_made(root, paths), _unlink(paths[-1:])),
    "two newest, the next is made": lambda root, paths: (_next_made(root, paths), _unlink(paths[-2:])),
    "newest is empty, the next is made": lambda root, paths: (_next_made(root, paths), paths[-1].write_bytes(b"")),
    "all": lambda root, paths: _unlink(paths),
    "all, the next is made": lambda root, paths: (_next_made(root, paths), _unlink(paths)),
    "the folder": lambda root, paths: shutil.rmtree(root / "commitlog"),
    "all, no bounds": lambda root, paths: (_unlink(paths), (root / "ringmq.queues").unlink()),
    "all, a queue repaired before": lambda root, paths: (_repaired_before(root), _unlink(paths)),
    "newest, a queue repaired before": lambda root, paths: (_repaired_before(root), _unlink(paths[-1:])),
    "one in the middle": lambda root, paths: _unlink(paths[2:3]),
    "two in the middle, the next is made": lambda root, paths: (_next_made(root, paths), _unlink(paths[1:3])),
    "one in the middle, killed": lambda root, paths: (_unlink(paths[2:3]), _killed(root)),
    "one in the middle, a queue repaired before": lambda root, paths: (_repaired_before(root), _unlink(paths[2:3])),
    "one in the middle and the newest": lambda root, paths: _unlink([paths[2], paths[-1]]),
    "another name": lambda root, paths: paths[2].rename(paths[2].with_name(f"{int(paths[2].name) + 7:020d}")),
    "a link": lambda root, paths: (paths[2].unlink(), paths[2].symlink_to("nowhere")),
    "all cut, the newest is missing": lambda root, paths: (
        [os.truncate(path, 100_000) for path in paths], _unlink(paths[-1:]),
    ),
    "all but the oldest, which is cut": lambda root, paths: (_unlink(paths[1:]), os.truncate(paths[0], 100_000)),
}  # fmt: skip


@pytest.mark.parametrize("damage", LOG_DAMAGES)
def test_the_start_and_verify_and_doctor_name_one_repair_of_a_lost_log(
    sound: Path, tmp_path: Path, damage: str
) -> None:
    before, root = messages(crashed_config(sound)), Path(shutil.copytree(sound, tmp_path / "it's a store"))
    LOG_DAMAGES[damage](root, sorted((root / "commitlog").iterdir()))
    with pytest.raises(StartError, match="/commitlog") as caught:
        start(root, [])
    command = command_in(str(caught.value))
    assert shlex.quote(str(root)) in command and "--accept-loss" in command
    config = changed(BrokerConfig(), SETTINGS | {"storePathRootDir": str(root)})
    assert command_in(gather_store(store_config(config)).remedy) == command
    assert command_in(CliRunner().invoke(main, ["store", "verify", str(root), *SIZES]).output) == command
    files = sorted((path, path.stat().st_size) for path in root.rglob("*") if path.is_file())
    for option in ([], ["--dry-run"]):  # nothing is given up unless the loss is accepted
        words = [word for word in shlex.split(command)[1:] if word != "--accept-loss"]
        refused = CliRunner().invoke(main, [*words, *option])
        assert refused.exit_code == 1 and command_in(refused.output) == command
    assert sorted((path, path.stat().st_size) for path in root.rglob("*") if path.is_file()) == files
    check_advice(root, before, is_queue_lost="a queue" in damage)


def test_a_config_file_and_its_older_copy_are_moved_away_by_one_command(sound: Path, tmp_path: Path) -> None:
    before, root = messages(crashed_config(sound)), Path(shutil.copytree(sound, tmp_path / "it's a store"))
    paths = [root / "config" / name for name in ("topics.json", "topics.json.bak")]
    for path in paths:
        path.write_text("{")
    paths[1].with_name("topics.json.bak.damaged").write_text("of an earlier fault")
    check_advice(root, before)
    kept = [root / "config" / name for name in ("topics.json.damaged", "topics.json.bak.damaged.2")]
    assert [path.read_text() for path in kept] == ["{", "{"]


def test_verify_names_the_repair_of_wrong_entries(sound: Path, tmp_path: Path) -> None:
    before, root = messages(crashed_config(sound)), Path(shutil.copytree(sound, tmp_path / "store"))
    (root / "timerwheel").unlink()  # the table's is no wheel
    path = sorted((root / "consumequeue" / "CrashA" / "0").iterdir())[0]
    one_bit(path, path)
    words = ["store", "verify", str(root), *SIZES]
    said = CliRunner().invoke(main, words)
    assert said.exit_code == 1
    follow(command_in(said.output))
    assert CliRunner().invoke(main, words).exit_code == 0
    check_advice(root, before)
