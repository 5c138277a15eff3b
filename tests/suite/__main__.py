"""Run all tests and compare: `python -m tests.suite [--strict] [--workers 4] [--seed 1] [-- PYTEST_ARGS]`.

Three runs of pytest: tests marked `timed` with nothing beside them, all others in several workers, and the tests that
failed once more alone. `verdict.py` compares both attempts. All outputs stand in build/tests/verdict.txt.

`--engine epoll` runs them on that engine, with the outputs in build/tests-epoll. `--part` takes the tests of
`engine_part.py` alone.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.suite.attempts import Run
from tests.suite.disk import missing_disk, temporary_folder
from tests.suite.engine_part import PART
from tests.suite.verdict import Verdict, compare, end_of_log, full_text, to_run_again

BUILD = Path("build/tests")
REPORT = "verdict.txt"
INTERRUPTED, NOTHING_RUN, TESTS_FAILED = 2, 5, 1
"""Statuses of pytest."""
WORKER_RESTARTS_MAX = 8
SEED_MAX = 2**32 - 1


class Suite:
    """Runs pytest and keeps what the runs have recorded."""

    def __init__(self, build: Path, seed: int, strict: bool, pytest_args: list[str]) -> None:
        self._build, self._seed, self._strict, self._args = build, seed, strict, pytest_args
        self.runs: list[Run] = []
        self.broken: list[str] = []
        self.is_over = False

    def run(self, name: str, *options: str) -> Run:
        """One run of pytest. If it ends by itself before its end, `broken` says so."""
        if self.is_over:
            return Run()
        print(f"== {name}", flush=True)
        began, record = time.monotonic(), self._build / f"{name.replace(' ', '-')}.jsonl"
        own = ("-p", "tests.suite.recorder", "--record", str(record), "--seed", str(self._seed))
        command = (sys.executable, "-m", "pytest", *own, *self._ends(), *options, *self._args)
        status = self._wait(command)
        run = Run.read(record)
        self._note(name, run, status)
        print(f"== {name}: status {status} in {time.monotonic() - began:.1f} s", flush=True)
        return run

    def _ends(self) -> tuple[str, ...]:
        if self._strict:
            return ("--max-worker-restart=0", "--exitfirst", "--stop-file", str(self._build / "stop"))
        return (f"--max-worker-restart={WORKER_RESTARTS_MAX}",)

    def _wait(self, command: tuple[str, ...]) -> int:
        """The status of pytest. An interrupt reaches pytest, too: its fixtures end what they have started."""
        with subprocess.Popen(command, env=os.environ | {"PYTHONHASHSEED": str(self._seed)}) as process:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    self.is_over = True

    def _note(self, name: str, run: Run, status: int) -> None:
        failed = bool(run.with_outcome("failed"))
        is_stopped = self._strict and failed and status == INTERRUPTED
        if self.is_over:
            self.broken.append(f"interrupted in the run of {name}")
        elif status not in (0, TESTS_FAILED, NOTHING_RUN) and not is_stopped:
            self.broken.append(f"pytest ended with status {status} in the run of {name}")
        elif not run.is_whole:
            self.broken.append(f"no test was collected in the run of {name}")
        elif status == TESTS_FAILED and not failed and not run.uncollected:
            self.broken.append(f"an error outside of any test in the run of {name}")
        if run.lost_workers > 0:
            self.broken.append(f"{run.lost_workers} workers ended outside of any test in the run of {name}")
        self.is_over |= self._strict and (failed or bool(run.uncollected))

    def again(self) -> Run:
        """Second attempts, one test after another with nothing beside them."""
        names = to_run_again(self.runs)
        if not names:
            return Run()
        only = self._build / "failed-once.txt"
        only.write_text("".join(f"{name}\n" for name in names))
        files = sorted({name.partition("::")[0] for name in names})
        return self.run("failed tests alone", "--only", str(only), "-n", "1", *files)


def seed(text: str) -> int:
    """Read a seed that Python takes for hashes."""
    number = int(text)
    if not 0 <= number <= SEED_MAX:
        raise argparse.ArgumentTypeError(f"a seed is 0 to {SEED_MAX}, not {text}")
    return number


def main(arguments: list[str] | None = None) -> int:
    """Run and compare; 0 if the suite holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("--strict", action="store_true", help="end at the first failure, and run nothing again")
    parser.add_argument("--workers", default="4", help="processes that share the tests which are not timed")
    parser.add_argument("--seed", type=seed, default=1, help="of what tests draw, and of hashes")
    parser.add_argument("--engine", choices=("io_uring", "epoll"), help="of brokers and kits; default: as found")
    parser.add_argument("--part", action="store_true", help="only the tests that meet the engine")
    parser.add_argument("pytest_args", nargs="*", metavar="PYTEST_ARGS", help="after --")
    options = parser.parse_args(arguments)
    if lacks := missing_disk(temporary_folder()):
        print(f"suite: {lacks}", file=sys.stderr)
        return 1
    build = BUILD
    if options.engine:
        os.environ["RINGMQ_ENGINE"] = options.engine
        build = BUILD.with_name(f"{BUILD.name}-{options.engine}")
    build.mkdir(parents=True, exist_ok=True)
    for old in (*build.glob("*.jsonl"), *build.glob("*.txt"), build / "stop"):
        old.unlink(missing_ok=True)
    suite = Suite(build, options.seed, options.strict, [*options.pytest_args, *(PART if options.part else ())])
    suite.runs.append(suite.run("timed tests", "-m", "timed", "-n", "1"))
    others = ("-m", "not timed and not upgrade and not proxy", "-n", options.workers, "--durations=25")
    suite.runs.append(suite.run("tests", *others))
    verdict = compare(suite.runs, suite.again())
    ran = verdict.passed or verdict.failed or verdict.skipped
    verdict.broken = suite.broken + ([] if ran else ["no test has run"])
    report(verdict, build / REPORT, options.seed)
    return 0 if verdict.holds else 1


def report(verdict: Verdict, path: Path, seed: int) -> None:
    """Write all that is known of failures to a file, and the end of the log."""
    end = end_of_log(verdict, seed, str(path))
    whole = [line for failure in verdict.failed + verdict.wavering for line in [*full_text(failure, seed), ""]]
    for phase in verdict.uncollected:
        whole += [f"== cannot be collected: {phase.test}", *phase.output.splitlines(), ""]
    path.write_text("\n".join([*whole, *(f"not run: {test}" for test in verdict.not_run), *end]) + "\n")
    print("\n".join(end), flush=True)


if __name__ == "__main__":
    sys.exit(main())
