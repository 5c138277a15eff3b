"""The SDK's tests once more without the C core and without orjson, as after an install without extras."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = (
    "test_producer.py", "test_consumer.py", "test_consumer_positions.py", "test_send_request.py",
    "test_pull_decoding.py", "test_routes.py",
)  # fmt: skip
LEFT_OUT = "not (blocking and (test_producer.py or test_consumer.py))"
"""The blocking transport takes the same parts that have compiled forms. The other files have it."""


@pytest.mark.skipif(os.environ.get("RINGMQ_PURE_PYTHON") == "1", reason="this is that run")
@pytest.mark.timeout(600)
def test_everything_passes_without_compiled_code() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-k", LEFT_OUT, *(str(ROOT / "tests" / "client" / name) for name in FILES)]
    environment = os.environ | {"RINGMQ_PURE_PYTHON": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=570, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "compiled code is shut out" in done.stdout
