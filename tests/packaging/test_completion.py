"""The completion that the Debian package brings, in a real bash."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging" / "completion"
FILES = (
    "usr/share/bash-completion/completions/ringmq",
    "usr/share/zsh/vendor-completions/_ringmq",
    "usr/share/fish/vendor_completions.d/ringmq.fish",
)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ringmq`, in a folder of its own."""
    path = tmp_path_factory.mktemp("bin") / "ringmq"
    call = "from ringmq.cli.main import main; main(prog_name='ringmq')"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{call}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def machine(command: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that stands for a machine with the completion."""
    folder = tmp_path_factory.mktemp("machine")
    subprocess.run([SCRIPT, command, folder], check=True, timeout=60)
    return folder


def completed(machine: Path, command: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = f"""
        . {machine / FILES[0]}
        COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1}
        _ringmq_completion {command}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is needed")
def test_bash_completes_commands_and_options(machine: Path, command: Path) -> None:
    assert completed(machine, command, "ringmq", "top") == ["topic", "top"]
    assert completed(machine, command, "ringmq", "topic", "del") == ["delete"]
    assert completed(machine, command, "ringmq", "consume", "--namesr") == ["--namesrv"]


def test_each_shell_has_its_file(machine: Path) -> None:
    for name in FILES:
        text = (machine / name).read_text()
        assert "_RINGMQ_COMPLETE=" in text
        assert "_ringmq_completion" in text
