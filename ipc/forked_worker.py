"""A process that the image has forked becomes a worker.

It never returns into the image's call stack. The supervisor has passed the
worker's descriptors in the order. All others are closed.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from msgspec import Struct

from ringmq.ipc.exit_status import EXIT_PACKAGE_REPLACED
from ringmq.ipc.logs import refusal_line
from ringmq.ipc.package_guard import PackageReplacedError
from ringmq.ipc.process_title import set_title
from ringmq.ipc.worker import die_with_parent


class Order(Struct, frozen=True):
    """A worker that is to be started."""

    parent: int
    """Process id of the supervisor."""
    name: str
    module: str
    spec: str
    fds: Sequence[int]
    """The numbers of the descriptors in the worker, in the order of the message."""


def become(
    order: Order, descriptors: Sequence[int], gate: int, mask: Iterable[int], code: CodeType | None, label: str
) -> NoReturn:
    """Run the worker as `python -m MODULE NAME SPEC` would, then end the process. `mask`: the signals that the main
    process blocks. `code`: that of the module, None if the image has not loaded it."""
    status = 1
    try:
        die_with_parent(order.parent)
        if os.read(gate, 1):  # at the end of the file the supervisor has given the order up
            _leave_image(mask, label, order, descriptors)
            status = run_program(order.module, (order.name, order.spec), code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _leave_image(mask: Iterable[int], label: str, order: Order, descriptors: Sequence[int]) -> None:
    """Keep nothing of the image but its modules."""
    atexit._clear()
    logging.getLogger().handlers.clear()
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    place_descriptors(descriptors, order.fds)
    set_title(order.name, label)
    gc.enable()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def place_descriptors(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Give the descriptors these numbers, which are above 2, and close all others but the standard ones."""
    held = dict(zip(numbers, descriptors, strict=True))
    for number in numbers:
        if held[number] == number:
            continue
        for other, descriptor in held.items():
            if descriptor == number:  # it is in the way
                held[other] = os.dup(descriptor)
        os.dup2(held[number], number, inheritable=False)
        held[number] = number
    close_all_but(numbers)


def close_all_but(kept: Collection[int]) -> None:
    """Close all descriptors but these and the standard ones.

    os.closerange needs close_range(2). An interpreter that was built for an old C library does not call it, and a
    seccomp profile may refuse it. Then os.closerange tries each number: 1 << 30 of them take a minute.
    """
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed already
                os.close(number)


def code_of(module: str) -> CodeType | None:
    """The code of a module, which runs as the main program."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"there is no module {module}", name=module)
    loader: Any = spec.loader
    code: CodeType | None = loader.get_code(module)
    return code


def run_program(module: str, words: Sequence[str], code: CodeType | None = None) -> int:
    """Run `python -m MODULE WORDS` in this process. Returns its exit status, which is for os._exit."""
    if not sys.flags.safe_path:
        with contextlib.suppress(OSError):
            sys.path[0] = str(Path.cwd())  # as `python -m` does
    try:
        status = _status(_run_main, module, words, code)
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does at its end
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    return status


def _run_main(module: str, words: Sequence[str], code: CodeType | None) -> None:
    code = code or code_of(module)
    assert code is not None
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=code.co_filename, __spec__=importlib.util.find_spec(module), __builtins__=__builtins__,
        __package__=module.rpartition(".")[0],
    )  # fmt: skip
    sys.modules["__main__"] = main
    sys.argv = [code.co_filename, *words]
    exec(code, main.__dict__)


def _status(run: Any, *arguments: Any) -> int:
    """Run it as a program. Returns the exit status as the interpreter would have it, -SIGINT for this signal."""
    try:
        run(*arguments)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        sys.stderr.write(f"{error.code}\n")
        return 1
    except PackageReplacedError as error:
        sys.stderr.write(f"{refusal_line(str(error))}\n")  # the worker's log may not be set up yet
        return EXIT_PACKAGE_REPLACED
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0
