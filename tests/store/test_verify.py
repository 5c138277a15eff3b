"""`store verify` finds nothing in sound stores and each planted fault; `inspect` shows what is there."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.cli.store_commands import store as store_group
from ringmq.ipc import watermark
from ringmq.store import inspect as look
from ringmq.store.config_files import load_config, persist_config
from ringmq.store.index_file import index_paths
from ringmq.store.inferred_config import config_for_folder
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import recover
from ringmq.store.store_lock import StoreLock
from ringmq.store.topic_start_offsets import write_start_offsets
from ringmq.store.verify import VerifyReport, verify
from tests.store.golden_stores import basic_config, crashed_config

END = 3478574


def _verify(root: Path, end: int = END, **options: bool) -> VerifyReport:
    return verify(MessageStore(basic_config(root)), end, **options)


def _patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _log(root: Path, offset: int) -> tuple[Path, int]:
    return root / "commitlog" / f"{offset // 1048576 * 1048576:020d}", offset % 1048576


def test_golden_store_is_sound(golden_basic: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    store = MessageStore(basic_config(golden_basic))
    report = verify(store, END, progress=lambda *step: seen.append(step), cross_check=True)
    assert (report.errors, report.warnings, report.findings) == (0, 0, [])
    assert (report.records, report.units, report.blanks, report.index_files) == (4302, 4302, 3, 22)
    assert report.cross_checked and seen[-1] == ("log", END, END)


@pytest.mark.parametrize("end", [0, 222 + 245, 1048091, 1048576, 2096117, 3000000 - 3000000 % 7])
def test_any_bound_is_sound(golden_basic: Path, manifest: list[dict[str, Any]], end: int) -> None:
    borders = [entry["commitLogOffset"] for entry in manifest if entry["commitLogOffset"] <= end]
    bound = max(borders, default=0)
    report = _verify(golden_basic, bound, cross_check=False)
    assert (report.errors, report.records) == (0, len([border for border in borders if border < bound]))


@pytest.mark.parametrize("variant", ["crash-kill9", "crash-live", "crash-torn-body"])
def test_recovered_stores_are_sound_where_the_index_was_kept(crashed_copy: Callable[[str], Path], variant: str) -> None:
    root = crashed_copy(variant)
    result = recover(crashed_config(root))
    report = verify(MessageStore(crashed_config(root)), result.redispatch_offset, cross_check=False)
    assert report.errors == 0
    assert verify(MessageStore(crashed_config(root)), result.append_offset, check_index=False).errors == 0


def _entry(manifest: list[dict[str, Any]]) -> dict[str, Any]:
    """A record with body, tags and keys in the middle of GoldA queue 3."""
    return next(e for e in manifest if (e["topic"], e["queueId"], e["queueOffset"]) == ("GoldA", 3, 40))


def test_damaged_body_is_found_and_passed(basic_copy: Path, manifest: list[dict[str, Any]]) -> None:
    entry = _entry(manifest)
    path, at = _log(basic_copy, entry["commitLogOffset"])
    _patch(path, at + 88, b"\xff\xff")
    report = _verify(basic_copy, cross_check=False)
    assert any(f.place == f"commit log {entry['commitLogOffset']}" and "CRC" in f.text for f in report.findings)
    assert report.records == 4301
    assert any("GoldA/3 offset 40" in f.text for f in report.findings)
    assert report.errors == 1, "the unit is right"


def test_overwritten_header_is_passed_to_the_next_border(basic_copy: Path, manifest: list[dict[str, Any]]) -> None:
    entry = _entry(manifest)
    path, at = _log(basic_copy, entry["commitLogOffset"])
    _patch(path, at, b"\xff" * 90)
    report = _verify(basic_copy, cross_check=False)
    assert report.records == 4301 and report.errors >= 1


def test_odd_properties_are_warned_of_not_cut(basic_copy: Path, manifest: list[dict[str, Any]]) -> None:
    entry = _entry(manifest)
    path, at = _log(basic_copy, entry["commitLogOffset"] + entry["storeSize"] - 1)
    _patch(path, at, b"\x00")
    report = _verify(basic_copy, cross_check=False)
    assert [(f.severity, f.place) for f in report.findings if "NUL" in f.text] == [
        ("warning", f"commit log {entry['commitLogOffset']}")
    ]
    assert report.records == 4302


@pytest.mark.parametrize(("at", "text"), [(0, "names offset"), (8, "size"), (12, "tags code")])
def test_wrong_unit(basic_copy: Path, at: int, text: str) -> None:
    path = basic_copy / "consumequeue" / "GoldA" / "3" / ("0" * 20)
    old = path.read_bytes()[40 * 20 + at : 40 * 20 + at + 4]
    _patch(path, 40 * 20 + at, bytes([old[0], old[1], old[2] ^ 1, old[3] ^ 1]) if at else bytes(7) + b"\x09")
    report = _verify(basic_copy, cross_check=False)
    assert any(f.place == "GoldA/3 unit 40" and text in f.text for f in report.findings)


def test_missing_and_superfluous_units(basic_copy: Path) -> None:
    path = basic_copy / "consumequeue" / "GoldA" / "3" / ("0" * 20)
    data = path.read_bytes()
    _patch(path, 139 * 20, bytes(20))  # the last one
    report = _verify(basic_copy, cross_check=False)
    assert [f.text for f in report.findings] == ["queue offset 139 of GoldA/3 has no unit for it"]
    _patch(path, 139 * 20, data[139 * 20 : 140 * 20] + data[139 * 20 : 140 * 20])
    report = _verify(basic_copy, cross_check=False)
    assert report.errors == 1 and "GoldA/3" in report.findings[0].place


def test_wrong_batch_unit(basic_copy: Path) -> None:
    _patch(basic_copy / "batchconsumequeue" / "GoldBatchCQ" / "0" / ("0" * 20), 46 + 37, b"\x09")
    report = _verify(basic_copy, cross_check=False)
    assert report.errors >= 1 and "GoldBatchCQ/0" in report.findings[0].place


def test_faults_of_the_index(basic_copy: Path) -> None:
    path = index_paths(basic_copy / "index")[3]
    entry = 40 + 400 + 20 * 17
    data = path.read_bytes()
    _patch(path, entry, bytes(a ^ 1 for a in data[entry : entry + 4]))
    report = _verify(basic_copy, cross_check=False)
    texts = " ".join(f.text for f in report.findings)
    assert "not in the index" in texts and "names a key" in texts and "in no chain" in texts
    path.unlink()
    assert _verify(basic_copy, cross_check=False).errors > 20
    shutil.rmtree(basic_copy / "index")
    report = _verify(basic_copy, cross_check=False)
    assert report.errors == 1 and "no index file" in report.findings[0].text


def test_file_behind_the_log_and_lost_queue(basic_copy: Path) -> None:
    shutil.rmtree(basic_copy / "consumequeue" / "GoldTx")
    report = _verify(basic_copy, cross_check=False)
    assert {f.place for f in report.findings} == {"GoldTx/0", "GoldTx/1"}


# ---- command line ------------------------------------------------------------------------------------------


def test_commands(golden_basic: Path, basic_copy: Path) -> None:
    run = CliRunner()
    good = run.invoke(store_group, ["verify", str(golden_basic), "-o", "json", "--no-cross-check"])
    facts = json.loads(good.output)
    assert good.exit_code == 0 and (facts["records"], facts["errors"], facts["readable_offset"]) == (4302, 0, END)
    _patch(*_log(basic_copy, 88), b"\xff")
    bad = run.invoke(store_group, ["verify", str(basic_copy), "--no-cross-check"])
    assert bad.exit_code == 1 and "error: commit log 0: body CRC differs" in bad.output
    shown = json.loads(run.invoke(store_group, ["inspect", str(golden_basic), "-o", "json"]).output)
    assert len(shown["log_files"]) == 4 and len(shown["queues"]) == 30 and len(shown["index_files"]) == 22
    lines = run.invoke(store_group, ["inspect", str(golden_basic), "--records", "--limit", "5", "-o", "json"]).output
    assert [json.loads(line)["commit_log_offset"] for line in lines.splitlines()] == [0, 245, 467, 730, 1083]
    table = run.invoke(
        store_group, ["inspect", str(golden_basic), "--records", "--topic", "GoldB", "--queue", "1", "--from", "7"]
    )
    assert table.exit_code == 0 and table.output.count("\n") == 21
    wrong = run.invoke(store_group, ["inspect", str(golden_basic), "--set", "mappedFileSizeCommitLog=8192"])
    assert wrong.exit_code != 0 and "1048576 bytes" in wrong.output


def test_a_live_owner_bounds_both_commands(golden_basic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = watermark.Watermarks(True, END, 2000, 467, 0, watermark.CONFIRM_FLUSHED, 0, 0, 1, 1)
    monkeypatch.setattr(watermark, "read_watermarks", lambda root: live)
    run = CliRunner()
    shown = run.invoke(store_group, ["inspect", str(golden_basic), "--records", "-o", "json"]).output
    assert [json.loads(line)["commit_log_offset"] for line in shown.splitlines()] == [0, 245]
    facts = json.loads(run.invoke(store_group, ["verify", str(golden_basic), "-o", "json", "--no-cross-check"]).output)
    assert (facts["live_owner"], facts["records"], facts["errors"]) == (True, 2, 0)


def test_inspect_stops_at_damage_with_a_reason(basic_copy: Path) -> None:
    _patch(*_log(basic_copy, 467 + 88), b"\xff")
    rows = list(look.log_records(MessageStore(basic_config(basic_copy)), END, 0, END, 10))
    assert [row["commit_log_offset"] for row in rows] == [0, 245, 467]
    assert "CRC" in rows[-1]["error"]


def test_index_sizes_are_inferred_from_small_files(golden_basic: Path) -> None:
    config = config_for_folder(golden_basic)
    assert (config.index_slots, config.index_entries) == (100, 400)
    assert (config.commit_log_file_bytes, config.batch_consume_queue_file_bytes) == (1048576, 4600)


def test_numba_is_loaded_for_the_cross_check_alone(golden_basic: Path) -> None:
    look = "import sys; from ringmq.cli.main import main; main(sys.argv[1:], standalone_mode=False)"
    look += "; print('numba' in sys.modules)"
    for options, wanted in (((), "False"), (("--cross-check",), "True")):
        command = [sys.executable, "-c", look, "store", "verify", str(golden_basic), "-q", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.stdout.splitlines()[-1] == wanted, done.stdout + done.stderr


def test_without_numba_one_line_says_that_there_is_no_cross_check(
    golden_basic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringmq.store.verify.find_spec", lambda name: None)
    checked = CliRunner().invoke(store_group, ["verify", str(golden_basic), "-o", "json", "--cross-check"])
    assert checked.exit_code == 0
    assert checked.stderr == "no cross-check: numba is not installed, the extra `kernels` has it\n"
    assert json.loads(checked.stdout)["cross_checked"] is False


@pytest.mark.parametrize("is_made_again", [False, True])
def test_records_of_a_deleted_topic_are_counted_and_no_warning(basic_copy: Path, is_made_again: bool) -> None:
    table = load_config(basic_copy, "topics.json")
    del table["topicConfigTable"]["GoldC"]
    persist_config(basic_copy, "topics.json", table)
    shutil.rmtree(basic_copy / "consumequeue" / "GoldC")
    if is_made_again:
        (basic_copy / "consumequeue" / "GoldC" / "0").mkdir(parents=True)
        write_start_offsets(basic_copy, {"GoldC": END})
    report = _verify(basic_copy)
    assert (report.errors, report.warnings, report.findings) == (0, 0, [])
    assert report.deleted_records > 1000


def test_a_lost_folder_of_a_topic_is_a_warning(basic_copy: Path) -> None:
    shutil.rmtree(basic_copy / "consumequeue" / "GoldC")
    report = _verify(basic_copy)
    assert report.warnings > 0 and report.deleted_records == 0


def test_inspect_of_a_live_store_of_another_user_says_whose_it_is(
    basic_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(name: str, part: str, writable: bool = True) -> None:
        raise PermissionError(13, "Permission denied", f"/dev/shm/{name}-{part}")

    monkeypatch.setattr(watermark, "open_segment", denied)
    lock = StoreLock(basic_copy)
    try:
        done = CliRunner().invoke(store_group, ["inspect", str(basic_copy)])
    finally:
        lock.close()
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert "permission denied; run this as the broker's user" in done.output and "/dev/shm/" in done.output
