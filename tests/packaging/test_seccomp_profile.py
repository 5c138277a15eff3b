"""packaging/seccomp.json is what its script writes, and allows what it is for. Brokers under it: tests/broker."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "packaging"


def test_the_profile_allows_io_uring_and_what_epoll_needs() -> None:
    told = json.loads((FOLDER / "seccomp.json").read_text())
    assert told["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed, of_clone = told["syscalls"]
    assert allowed["action"] == "SCMP_ACT_ALLOW" and not allowed.get("args")
    assert of_clone["names"] == ["clone"] and of_clone["args"], "without namespaces"
    names = {*allowed["names"]}
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register", "epoll_create1", "execve", "setuid"} <= names
    assert not {"mount", "ptrace", "bpf", "kexec_load", "init_module", "unshare", "clone", "clone3"} & names


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="its sets are those of systemd")
def test_the_profile_is_what_its_script_writes() -> None:
    """Another version of systemd may know more calls. It takes none away."""
    script = str(FOLDER / "seccomp-profile")
    printed = subprocess.run(
        [sys.executable, script, "--print"], capture_output=True, text=True, check=True, timeout=60
    )
    here, there = (json.loads(text) for text in (printed.stdout, (FOLDER / "seccomp.json").read_text()))
    assert {*there["syscalls"][0]["names"]} <= {*here["syscalls"][0]["names"]}
    for told in (here, there):
        told["syscalls"][0]["names"] = []
    assert here == there
