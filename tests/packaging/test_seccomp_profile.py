"""packaging/seccomp.json is what its script writes, and allows what it is for. Brokers under it: tests/broker."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ringmq import native
from tests.broker.seccomp import call_numbers

FOLDER = Path(__file__).parents[2] / "packaging"
HARDENING = FOLDER.parent / "systemd" / "ringmq-.service.d" / "hardening.conf"


def calls_of_the_core() -> set[str]:
    """The system calls that the C core makes through functions of the C library of the same name."""
    assert native.available()
    core = str(sys.modules["ringmq.native._native"].__file__)
    listed = subprocess.run(["nm", "-D", "--undefined-only", core], capture_output=True, text=True, check=True)
    wanted = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}
    calls = wanted & call_numbers().keys()
    assert {"madvise", "mincore", "epoll_wait"} <= calls
    return calls


def test_the_profile_allows_io_uring_and_what_epoll_needs() -> None:
    told = json.loads((FOLDER / "seccomp.json").read_text())
    assert told["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed, of_clone = told["syscalls"]
    assert allowed["action"] == "SCMP_ACT_ALLOW" and not allowed.get("args")
    assert of_clone["names"] == ["clone"] and of_clone["args"], "without namespaces"
    names = {*allowed["names"]}
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register", "epoll_create1", "execve", "setuid"} <= names
    assert not {"mount", "ptrace", "bpf", "kexec_load", "init_module", "unshare", "clone", "clone3"} & names


def test_the_profile_allows_each_call_of_the_core() -> None:
    told = json.loads((FOLDER / "seccomp.json").read_text())
    assert not calls_of_the_core() - {name for rule in told["syscalls"] for name in rule["names"]}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="its sets are those of systemd")
def test_the_units_allow_each_call_of_the_core() -> None:
    calls_of = runpy.run_path(str(FOLDER / "seccomp-profile"))["calls_of"]
    lines = [
        line.partition("=")[2] for line in HARDENING.read_text().splitlines() if line.startswith("SystemCallFilter=")
    ]
    allowed, forbidden = lines
    assert forbidden.startswith("~")
    assert not calls_of_the_core() - (calls_of(*allowed.split()) - calls_of(*forbidden[1:].split()))


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
