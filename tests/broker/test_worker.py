"""What a process of the broker costs at its start."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("entry", "unwanted"),
    [
        ("ringmq.broker.worker", "ringmq.ipc.supervisor_core ringmq.remoting.command ringmq.store.recovery"),
        ("ringmq.broker.server", "ringmq.remoting.client_headers ringmq.broker.tables.consumers importlib.metadata"),
    ],
)
def test_a_start_does_not_pay_for_what_it_does_not_use(entry: str, unwanted: str) -> None:
    """Six processes start one after another while nobody is served."""
    script = f"import sys, {entry}; print(*(name for name in {unwanted.split()} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert not loaded.stdout.split()
