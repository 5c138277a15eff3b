"""A tree without timers builds, starts, sends, pulls and stops."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.without_timers.tree import (
    ROOT,
    build_core,
    copy_tree,
    environment,
    files_that_name_timers,
    files_that_need_timers,
)


@pytest.mark.timeout(400)
def test_a_tree_without_timers_is_a_broker(tmp_path: Path) -> None:
    copy = copy_tree(tmp_path / "tree", with_tests=False)
    assert not (copy / "timer").exists() and not (copy / "native/src/timer").exists()
    build_core(copy)
    command = [sys.executable, str(Path(__file__).with_name("serve_once.py")), str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(copy), capture_output=True, text=True, timeout=100, check=False
    )
    log = tmp_path / "store.log"
    assert done.stdout == "served\n", done.stderr + (log.read_text() if log.exists() else "")


def test_files_that_need_timers_are_found_with_those_that_import_them() -> None:
    lost = {path.relative_to(ROOT / "tests").as_posix() for path in files_that_need_timers(ROOT)}
    named = {path.relative_to(ROOT / "tests").as_posix() for path in files_that_name_timers(ROOT)}
    assert {"timer/kit.py", "timer/test_slot_twin.py", "native/test_golden_timers.py"} <= lost
    assert "broker/test_timers.py" in named and "native/test_invariant.py" in named - lost
    assert "ipc/test_supervisor.py" not in lost | named
