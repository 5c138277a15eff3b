"""A worker that writes down what it finds in its process, for test_image.py. It ends by a signal, or at its gate."""

import json
import os
import random
import signal
import ssl
import sys
from pathlib import Path

MODULE = "tests.ipc.forked_probe"


def main(spec: dict[str, str]) -> None:
    found = {
        "name": sys.argv[1],
        "module": __name__,
        "path": sys.path[0],
        "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "fds": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
        "input": str(Path("/proc/self/fd/0").readlink()),
        "parent": os.getppid(),
        "random": random.random(),
        "ssl": ssl.RAND_bytes(8).hex(),
        "title": Path("/proc/self/cmdline").read_bytes().decode(),
        "comm": Path("/proc/self/comm").read_text().strip(),
    }
    target = Path(spec["target"])
    target.with_suffix(".part").write_text(json.dumps(found))
    target.with_suffix(".part").rename(target)
    if "status" in spec:
        sys.exit(int(spec["status"]))
    signal.pause()


if __name__ == "__main__":
    main(json.loads(sys.argv[2]))
