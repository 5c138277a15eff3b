"""The version before, built from git once, and the fixtures of these tests."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upgrade.version_kit import Member

OLD_COMMIT = "8f70242a"
TIMERS_COMMIT = "9e744b3c"
"""The last version without seals in TimerLog. OLD_COMMIT serves no timer messages."""
BEFORE_POP_COMMIT = "a0acbd2e"
FIRST_POP_COMMIT = "845eca5a"
"""The last version of POP without records of open messages in the log."""
ROOT = Path(__file__).parents[2]
BUILD_TIMEOUT_S = 900
MEMBER_SETTINGS = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 60_000}


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    """A broker of small files, whose version may change."""
    member = Member(tmp_path / "store", MEMBER_SETTINGS)
    yield member
    member.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--old-commit", default=OLD_COMMIT, help="the version to upgrade from (%(default)s)")


@pytest.fixture(scope="session")
def old_python(request: pytest.FixtureRequest) -> str:
    """The interpreter of an environment with the older version."""
    return _built(request.config.getoption("--old-commit", OLD_COMMIT))


@pytest.fixture(scope="session")
def timers_python() -> str:
    """The interpreter of an environment with the older version of timer messages."""
    return _built(TIMERS_COMMIT)


@pytest.fixture(scope="session")
def before_pop_python() -> str:
    """The interpreter of an environment with the last version without POP."""
    return _built(BEFORE_POP_COMMIT)


@pytest.fixture(scope="session")
def first_pop_python() -> str:
    """The interpreter of an environment with an older version of POP."""
    return _built(FIRST_POP_COMMIT)


def _built(commit: str) -> str:
    """Return the interpreter of the environment in build/upgrade/COMMIT, which is made when it is not there."""
    folder = ROOT / "build" / "upgrade" / commit
    python, done = folder / "venv" / "bin" / "python", folder / "done"
    if not done.exists():
        (folder / "source").mkdir(parents=True, exist_ok=True)
        archive = folder / "source.tar"
        _run("git", "-C", str(ROOT), "archive", "-o", str(archive), commit)
        _run("tar", "-x", "-f", str(archive), "-C", str(folder / "source"))
        _run("python3", "-m", "venv", str(folder / "venv"))
        _run(str(python), "-m", "pip", "install", "-q", f"{folder / 'source'}[broker]")
        done.touch()
    return str(python)


def _run(*command: str) -> None:
    made = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if made.returncode:
        pytest.fail(f"{' '.join(command)}: status {made.returncode}\n{(made.stdout + made.stderr)[-3000:]}")
