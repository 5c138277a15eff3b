"""The example of all settings runs against RingMQ, with the blocking clients."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conformance import servers

EXAMPLE = Path(__file__).parents[2] / "examples" / "client_settings.py"


def test_the_example_of_all_settings_runs(ringmq_server: servers.Server) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGMQ_")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(EXAMPLE)],
            env=environment | {"RINGMQ_NAMESRV": ringmq_server.namesrv},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.splitlines() == ["sent 10", "consumed 10", "traced 30"]
