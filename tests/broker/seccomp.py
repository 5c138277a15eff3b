"""Refuse system calls to a child process, as container runtimes do with io_uring by default.

As a program: `python seccomp.py io_uring_setup=EPERM,io_uring_enter=KILL COMMAND...` runs a command under a filter.
`io_uring=EPERM` stands for all three calls, `populate=EINVAL` for madvise as it was before Linux 5.14. A file in the
place of the refusals is a profile of container tools.
"""

import ctypes
import errno
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MADVISE, IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER = 28, 425, 426, 427
MADV_POPULATE = (22, 23)
"""To read, to write."""
IO_URING = (IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER)
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_LOAD, _AND, _JUMP_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
KILL = 0
"""In the place of an error: the call ends the process by SIGSYS."""
_NUMBER_AT, _ARGUMENTS_AT, _ARGUMENT_BYTES = 0, 16, 8


@dataclass(frozen=True, slots=True)
class Refusal:
    """A system call that fails, always or where one argument has this value. `error` may be KILL."""

    call: int
    error: int = errno.EPERM
    argument: int | None = None
    value: int = 0

    def code(self) -> list[tuple[int, int, int, int]]:
        """Instructions that answer with the error, or go on behind themselves."""
        load = [(_LOAD, 0, 0, _NUMBER_AT)]
        answer = [(_RETURN, 0, 0, _ERRNO | self.error if self.error else _KILL_PROCESS)]
        if self.argument is not None:
            at = _ARGUMENTS_AT + _ARGUMENT_BYTES * self.argument  # the lower half, on little-endian machines
            answer = [(_LOAD, 0, 0, at), (_JUMP_EQUAL, 0, len(answer), self.value), *answer]
        return [*load, (_JUMP_EQUAL, 0, len(answer), self.call), *answer]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refusing(*refusals: Refusal) -> Callable[[], None]:
    """A `preexec_fn` after which these calls fail, in this process and its children."""
    code = [instruction for refusal in refusals for instruction in refusal.code()]
    return filtered([*code, (_RETURN, 0, 0, _ALLOW)])


def without_populate(error: int = errno.EINVAL) -> list[Refusal]:
    """The refusals of a kernel before Linux 5.14: its madvise brings no pages in."""
    return [Refusal(MADVISE, error, argument=2, value=advice) for advice in MADV_POPULATE]


def call_numbers() -> dict[str, int]:
    """The numbers of this machine's system calls, from the headers of the kernel."""
    listed = subprocess.run(
        ["gcc", "-E", "-dM", "-include", "asm/unistd.h", "-"], input="", capture_output=True, text=True, check=True
    )
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", listed.stdout)}


def allowing(profile: Path) -> Callable[[], None]:
    """A `preexec_fn` after which the calls that this profile does not name fail as it says."""
    told, numbers = json.loads(profile.read_text()), call_numbers()
    code = [(_LOAD, 0, 0, _NUMBER_AT)]
    refused = (_RETURN, 0, 0, _ERRNO | told["defaultErrnoRet"])
    for rule in told["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ALLOW"
        answer = [(_RETURN, 0, 0, _ALLOW)]
        for masked in rule.get("args", ()):
            assert masked["op"] == "SCMP_CMP_MASKED_EQ"
            at = _ARGUMENTS_AT + _ARGUMENT_BYTES * masked["index"]
            look = [(_LOAD, 0, 0, at), (_AND, 0, 0, masked["value"]), (_JUMP_EQUAL, 1, 0, masked["valueTwo"])]
            answer = [*look, refused, *answer]
        for name in numbers.keys() & {*rule["names"]}:  # others are of other machines, or newer than the headers
            code += [(_JUMP_EQUAL, 0, len(answer), numbers[name]), *answer]
    return filtered([*code, refused])


def filtered(code: list[tuple[int, int, int, int]]) -> Callable[[], None]:
    """A `preexec_fn` that installs this program as the filter."""
    text = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)

    def apply() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        program = _Program(len(code), text)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")

    return apply


def main(filters: str, *command: str) -> None:
    """Become the command, under the filter."""
    if filters.endswith(".json"):
        allowing(Path(filters))()
        os.execvp(command[0], command)
    names = {"io_uring_setup": IO_URING[:1], "io_uring_enter": IO_URING[1:2], "io_uring_register": IO_URING[2:]}
    refusals = []
    for text in filters.split(","):
        name, _, error = text.partition("=")
        number = KILL if error == "KILL" else getattr(errno, error)
        if name == "populate":
            refusals += without_populate(number)
        else:
            refusals += [Refusal(call, number) for call in names.get(name, IO_URING)]
    refusing(*refusals)()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
