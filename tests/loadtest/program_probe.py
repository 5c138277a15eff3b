"""A program that prints what it finds in its process, for test_program.py, and ends as its words say."""

import atexit
import json
import locale
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path

MODULE = "tests.loadtest.program_probe"


def found() -> dict[str, object]:
    """What is the same in a forked program and in one that was started by exec."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "arguments": sys.argv,
        "command": " ".join(Path("/proc/self/cmdline").read_text().split("\0")).strip(),
        "name": Path("/proc/self/comm").read_text(),
        "environment": dict(os.environ),
        "first environment": sorted(filter(None, os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0"))),
        "folder": str(Path.cwd()),
        "path": sys.path,
        "umask": status["Umask"],
        "signals": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd")],
        "handlers": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
        "leads a session": os.getsid(0) == os.getpid(),
        "group": os.getpgrp() == os.getpid(),
        "parent": os.getppid(),
        "threads": status["Threads"],
        "limits": Path("/proc/self/limits").read_text(),
        "cpus": status["Cpus_allowed"],
        "locale": locale.setlocale(locale.LC_ALL),
        "zone": time.tzname,
        "flags": str(sys.flags),
        "log": [logging.getLogger().level, len(logging.getLogger().handlers), logging.getLogger("ringmq").level],
        "standard": [(stream.encoding, stream.errors) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "hash": hash("a text"),
    }


def main(end: str) -> None:
    """Print it, and what comes through standard input. Then end."""
    atexit.register(print, "at exit")
    print(json.dumps(found()))
    print(random.random(), "ringmq.ipc.forked_worker" in sys.modules)
    print(sys.stdin.readline(), end="")
    print("to standard error", file=sys.stderr, flush=True)
    match end:
        case "text":
            sys.exit("a reason")
        case "error":
            raise ValueError(end)
        case "pause":
            print("pauses", flush=True)
            signal.pause()
        case _:
            sys.exit(int(end))


if __name__ == "__main__":
    main(sys.argv[1])
