"""A suite of its own in a folder, run by the plugins of this one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INI = """
[pytest]
testpaths = tests
pythonpath = .
addopts = -ra --import-mode=importlib -p no:cacheprovider -p xdist -p pytest_timeout
timeout = 60
tmp_path_retention_policy = none
markers =
    timed: measures
    upgrade: long
"""


class Inner:
    """`write` adds a file of tests, `pytest` and `suite` run them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        tests = root / "tests"
        tests.mkdir()
        (root / "temporary").mkdir()
        others = shutil.ignore_patterns("test_*", "__pycache__")
        shutil.copytree(ROOT / "tests" / "suite", tests / "suite", ignore=others)
        for name in ("conftest.py", "waiting.py"):
            shutil.copy(ROOT / "tests" / name, tests / name)
        (root / "pytest.ini").write_text(INI)

    def write(self, name: str, text: str) -> None:
        """Add `tests/NAME.py`."""
        path = self.root / "tests" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def pytest(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run pytest there."""
        return self._run("pytest", "--basetemp", str(self.root / "temp"), *options)

    def suite(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run the whole suite there, with one worker."""
        return self._run("tests.suite", "--workers", "1", *options)

    def verdict(self) -> str:
        """The file that the last run of the suite has written."""
        return (self.root / "build" / "tests" / "verdict.txt").read_text()

    def _run(self, module: str, *options: str) -> "subprocess.CompletedProcess[str]":
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        # A pytest removes the oldest numbered folders of its temporary root. Beside several others it may remove one
        # that was just made, and a worker of that run ends with FileNotFoundError.
        kept["PYTEST_DEBUG_TEMPROOT"] = str(self.root / "temporary")
        return subprocess.run(
            [sys.executable, "-m", module, *options],
            cwd=self.root, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
