"""Run all tests and judge: `python -m tests.suite [--strict] [--workers 3] [--seed 1] [-- PYTEST_ARGS]`.

Three runs of pytest: tests marked `timed` with nothing beside them, all others in several workers, and what failed
once more alone. `verdict.py` compares both attempts. All outputs stand in build/tests/verdict.txt.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.suite.attempts import Attempt, Run
from tests.suite.verdict import AGAIN_MAX, Verdict, end_of_log, full_text, judge

BUILD = Path("build/tests")
REPORT = "verdict.txt"
NOTHING_RUN = 5  # pytest's status
TESTS_FAILED = 1
WORKER_RESTARTS_MAX = 8


class Suite:
    """Runs pytest and keeps what the runs have recorded."""

    def __init__(self, build: Path, seed: int, strict: bool, pytest_args: list[str]) -> None:
        self._build, self._seed, self._strict, self._args = build, seed, strict, pytest_args
        self.broken: list[str] = []

    def run(self, name: str, *options: str) -> Run:
        """One run of pytest. If it ends by itself before its end, `broken` says so."""
        print(f"== {name}", flush=True)
        began, record = time.monotonic(), self._build / f"{name.replace(' ', '-')}.jsonl"
        own = ("-p", "tests.suite.recorder", "--record", str(record), "--seed", str(self._seed))
        ends = (f"--max-worker-restart={WORKER_RESTARTS_MAX}", *(("--exitfirst",) if self._strict else ()))
        command = (sys.executable, "-m", "pytest", *own, *ends, *options, *self._args)
        status = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": str(self._seed)}, check=False).returncode
        run = Run.read(record)
        if status not in (0, TESTS_FAILED, NOTHING_RUN) or not run.is_whole:
            self.broken.append(f"pytest ended with status {status} in the run of {name}")
        elif status == TESTS_FAILED and not run.with_outcome("failed"):
            self.broken.append(f"an error outside of any test in the run of {name}")
        print(f"== {name}: status {status} in {time.monotonic() - began:.1f} s", flush=True)
        return run

    def again(self, failed: list[Attempt]) -> Run:
        """Second attempts, one test after another with nothing beside them."""
        names = [attempt.test for attempt in failed[:AGAIN_MAX]]
        if not names or self._strict:
            return Run()
        only = self._build / "failed-once.txt"
        only.write_text("".join(f"{name}\n" for name in names))
        files = sorted({name.partition("::")[0] for name in names})
        return self.run("failed tests alone", "--only", str(only), "-n", "1", *files)


def main(arguments: list[str] | None = None) -> int:
    """Run and judge; 0 if the run holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("--strict", action="store_true", help="end at the first failure, and run nothing again")
    parser.add_argument("--workers", default="3", help="processes that share the tests which are not timed")
    parser.add_argument("--seed", type=int, default=1, help="of what tests draw, and of hashes")
    parser.add_argument("--build", type=Path, default=BUILD, help="folder for records and the verdict")
    parser.add_argument("pytest_args", nargs="*", metavar="PYTEST_ARGS", help="behind --")
    options = parser.parse_args(arguments)
    shutil.rmtree(options.build, ignore_errors=True)
    options.build.mkdir(parents=True)
    suite = Suite(options.build, options.seed, options.strict, options.pytest_args)
    runs = [suite.run("timed tests", "-m", "timed", "-n", "1")]
    if not (options.strict and (runs[0].with_outcome("failed") or suite.broken)):
        unmeasured = ("-m", "not timed and not upgrade", "-n", options.workers, "--durations=25")
        runs.append(suite.run("tests", *unmeasured))
    verdict = judge(runs, suite.again([attempt for run in runs for attempt in run.with_outcome("failed")]))
    verdict.broken = suite.broken + ([] if verdict.passed or verdict.failed else ["no test has run"])
    report(verdict, options.build / REPORT, options.seed)
    return 0 if verdict.holds else 1


def report(verdict: Verdict, path: Path, seed: int) -> None:
    """Write all that is known of failures to a file, and the end of the log."""
    end = end_of_log(verdict, seed, str(path))
    whole = [line for doubt in verdict.failed + verdict.wavering for line in [*full_text(doubt, seed), ""]]
    path.write_text("\n".join([*whole, *end]) + "\n")
    print("\n".join(end), flush=True)


if __name__ == "__main__":
    sys.exit(main())
