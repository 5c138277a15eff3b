"""Sets up the standard library's `logging` in a process: one handler that writes lines to standard error.

`logFormat` and `logLevel` are words of the shared settings, so that C and all workers read the same ones. The level
may change while the process runs. The workers log decisions and faults, never a line for each message.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ringmq.ipc.log_lines import LEVELS, Style, format_line
from ringmq.remoting.printable import printable_lines

SUPERVISOR = "supervisor"
"""The name of a broker's main process in log lines."""
_STDERR = 2


class LineHandler(logging.Handler):
    """Writes each record in one call, so that lines of several processes do not mix.

    `level`: the lowest level that is written, read at each record.
    """

    def __init__(self, worker: str, style: Style, level: Callable[[], int], descriptor: int = _STDERR) -> None:
        super().__init__()
        self._worker = worker
        self._style = style
        self._level = level
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record. A failure to write is ignored: there is no other place for it."""
        if record.levelno < min(self._level(), logging.CRITICAL):
            return
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        fields: Mapping[str, object] | None = getattr(record, "fields", None)
        line = format_line(self._style, int(record.created * 1000), record.levelno, self._worker, text, fields) + "\n"
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))


def configure(worker: str, *, is_json: bool, level: Callable[[], int] = lambda: logging.DEBUG) -> Style:
    """Send all records of this process to standard error, also uncaught exceptions. Returns the style.

    `level`: the lowest level that is written, read at each record.
    """
    style = Style(is_json, is_journal(os.environ))
    root = logging.getLogger()
    root.handlers[:] = [LineHandler(worker, style, level)]
    root.setLevel(logging.INFO)
    logging.getLogger("ringmq").setLevel(logging.DEBUG)
    logging.getLogger("__main__").setLevel(logging.DEBUG)
    sys.excepthook = _on_uncaught
    threading.excepthook = lambda args: _on_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    return style


def configure_worker(worker: str, settings: Any) -> None:
    """Set up this worker process, its C lines too. `settings`: struct rmq_settings of its plane."""
    from ringmq.native import lib

    style = configure(worker, is_json=bool(settings.log_json), level=lambda: int(settings.log_level))
    lib.rmq_log_style(lib.RMQ_LOG_JSON * style.is_json | lib.RMQ_LOG_JOURNAL * style.is_journal)


def hold_standard_descriptors() -> None:
    """Open /dev/null for each standard descriptor that the caller has closed (`ringmq serve >&- 2>&-`).

    Otherwise the next socket or file gets the number of standard error, and log lines go there.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def set_level(number: int) -> None:
    """Write no records of RingMQ below this level."""
    logging.getLogger("ringmq").setLevel(number)


def refusal_line(text: str) -> str:
    """The line of a process that ends before it serves: with a priority for the journal, else for a terminal."""
    if not is_journal(os.environ):
        return f"Error: {printable_lines(text)}"
    return format_line(Style(is_journal=True), 0, logging.CRITICAL, SUPERVISOR, text)


def is_journal(environment: Mapping[str, str], descriptor: int = _STDERR) -> bool:
    """True if the descriptor is the stream to the journal that JOURNAL_STREAM names (systemd.exec(5))."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def level_number(name: str) -> int:
    """The number of a value of `logLevel`."""
    assert name in LEVELS
    return int(getattr(logging, name))


def _on_uncaught(kind: type[BaseException], error: BaseException | None, trace: Any) -> None:
    if error is None or issubclass(kind, SystemExit | KeyboardInterrupt):
        return
    logging.getLogger("ringmq").critical("ends by a defect: %s", error, exc_info=(kind, error, trace))
