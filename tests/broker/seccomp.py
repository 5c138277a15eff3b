"""Refuse system calls to a child process, as container runtimes do with io_uring by default.

As a program: `python seccomp.py io_uring_setup=EPERM,io_uring_enter=KILL COMMAND...` runs a command under a filter.
`io_uring=EPERM` stands for all three calls.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

MADVISE, IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER = 28, 425, 426, 427
IO_URING = (IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER)
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
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
    code.append((_RETURN, 0, 0, _ALLOW))
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
    names = {"io_uring_setup": IO_URING[:1], "io_uring_enter": IO_URING[1:2], "io_uring_register": IO_URING[2:]}
    refusals = []
    for text in filters.split(","):
        name, _, error = text.partition("=")
        number = KILL if error == "KILL" else getattr(errno, error)
        refusals += [Refusal(call, number) for call in names.get(name, IO_URING)]
    refusing(*refusals)()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
