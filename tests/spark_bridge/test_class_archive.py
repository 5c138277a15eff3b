"""The options by which the JVMs of a test run find the archive of Spark's classes (`.ci/spark-classes`)."""

import shlex
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / ".ci" / "spark-classes"


def test_options_hold_in_a_checkout_with_a_space_in_its_path(tmp_path: Path) -> None:
    """Every JVM ends at once if its options hold a word that is none: "Cannot specify main class in environment"."""
    root = tmp_path / "a checkout"
    (root / ".ci").mkdir(parents=True)
    (root / ".venv").mkdir()
    shutil.copy(SCRIPT, root / ".ci")

    def options() -> list[str]:
        command = [root / ".ci" / SCRIPT.name, "options"]
        return shlex.split(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert options() == []
    (root / ".venv" / "spark.jsa").touch()
    assert options() == [f"-XX:SharedArchiveFile={root}/.venv/spark.jsa", "-Xlog:cds*=off"]
