"""Printable records of loggers whose handlers belong to the program: the SDK's and those of Spark jobs.

Servers and workers do the same in their own handler (`ipc/log_lines.py`).
"""

from __future__ import annotations

import logging

from ringmq.remoting.printable import printable_lines

_INDENT = "    "


class PrintableFilter(logging.Filter):
    """Changes records with unprintable text, and indents their further lines. Others stay as they are.

    A changed record loses its arguments: they may be objects, whose text is not known before they are formatted.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True: every record is written."""
        try:
            text = record.getMessage()
        except Exception:  # an argument without a text, such as an error of the program: its handlers report that
            return True
        shown = printable_lines(text, _INDENT)
        if shown != text:
            record.msg, record.args = shown, None
        if record.exc_info and not record.exc_text:
            trace = logging.Formatter().formatException(record.exc_info)
            if (shown := printable_lines(trace)) != trace:
                record.exc_text = shown
        return True


_FILTER = PrintableFilter()


def make_printable(*names: str) -> None:
    """Have these loggers write printable text alone. A second call changes nothing."""
    for name in names:
        logging.getLogger(name).addFilter(_FILTER)
