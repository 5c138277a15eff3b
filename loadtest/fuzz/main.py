"""`make fuzz`: damaged inputs in process under sanitizers, then over sockets. Continues an interrupted run."""

import json
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

import click

from ringmq.loadtest.fuzz.drivers import DRIVERS, FuzzError, build, run
from ringmq.loadtest.fuzz.sockets import ENDPOINTS, fuzz_endpoint
from ringmq.loadtest.load.beforehand import prepare_results
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.sigterm import ended_by_sigterm

INPUTS = 10_000_000
INPUTS_A_RUN = 1_000_000
ENDPOINT_TIMEOUT_S = 3600.0
NAMES = (*(driver.name for driver in DRIVERS), *(endpoint.name for endpoint in ENDPOINTS))


class Progress:
    """Finished inputs and the next seed of each target, in a file."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        self._path = path
        self._done: dict[str, dict[str, int]] = {}
        if path.exists() and not fresh:
            self._done = json.loads(path.read_text())

    def of(self, name: str) -> Counter[str]:
        """Return `inputs`, `runs`, and the counters of the target."""
        return Counter(self._done.get(name, {}))

    def add(self, name: str, counted: dict[str, int]) -> None:
        """Add one run."""
        self._done[name] = dict(self.of(name) + Counter(counted) + Counter(runs=1))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._done, indent=1) + "\n")


def fuzz_drivers(names: list[str], progress: Progress, golden: Path, folder: Path, seed: int, inputs: int) -> None:
    """Fuzz in process. Raises FuzzError."""
    drivers = [driver for driver in DRIVERS if driver.name in names]
    programs = {driver.name: build(driver, Path("native/src"), folder) for driver in drivers}  # all before the hours
    for driver in drivers:
        program = programs[driver.name]
        while (left := inputs - progress.of(driver.name)["inputs"]) > 0:
            began = time.monotonic()
            number = seed * 1_000_000 + progress.of(driver.name)["runs"]
            counted = run(driver, program, golden, number, min(left, INPUTS_A_RUN))
            progress.add(driver.name, counted)
            click.echo(
                f"{driver.name}: seed {number}, {time.monotonic() - began:.0f} s, {dict(progress.of(driver.name))}"
            )


def fuzz_endpoints(names: list[str], progress: Progress, golden: Path, seed: int, share: float) -> None:
    """Fuzz over sockets, against one broker that has to start again afterwards. Raises FuzzError and RuntimeError."""
    endpoints = [endpoint for endpoint in ENDPOINTS if endpoint.name in names]
    if not endpoints:
        return
    with tempfile.TemporaryDirectory(prefix="ringmq-fuzz-") as folder:
        store = Path(folder) / "store"
        settings = {"mappedFileSizeCommitLog": 64 << 20, "metricsPromExporterPort": 0}
        with RunningBroker(store, settings) as broker:
            urllib.request.urlopen(f"{broker.metrics_url}/health").close()  # its worker starts at the first request
            for endpoint in endpoints:
                left = int(endpoint.inputs * share) - progress.of(endpoint.name)["inputs"]
                if left <= 0:
                    continue
                result = fuzz_endpoint(endpoint, broker, golden, seed, left, ENDPOINT_TIMEOUT_S)
                progress.add(endpoint.name, {"inputs": result.inputs, "connections": result.tally.opened})
                answers = ", ".join(f"{code}: {count:,}" for code, count in result.tally.answers.most_common(8))
                click.echo(f"{endpoint.name}: {dict(progress.of(endpoint.name))}, answers {answers}")
            if status := broker.stop():
                raise FuzzError(f"the stop ended with status {status}:\n{broker.log_tail()}")
        with RunningBroker(store, settings) as broker:
            broker.stop()


@click.command()
@click.option("--only", default="", help="Targets, comma separated: " + ", ".join(NAMES))
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--inputs", type=click.IntRange(1), default=INPUTS, show_default=True, help="In process, of each target.")
@click.option("--share", type=float, default=1.0, show_default=True, help="Of the inputs over sockets.")
@click.option("--golden", type=click.Path(path_type=Path, exists=True), default=Path("tests/golden"), show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/fuzz"), show_default=True)
@click.option("--fresh", is_flag=True, help="Start from the first input instead of going on.")
@ended_by_sigterm()
def main(only: str, seed: int, inputs: int, share: float, golden: Path, folder: Path, fresh: bool) -> None:
    """Feed damaged frames and streams. Exit status 1 with seed and report if a rule is broken. In a checkout."""
    names = [name for name in only.split(",") if name] or list(NAMES)
    if unknown := set(names) - set(NAMES):
        raise click.BadParameter(f"{', '.join(sorted(unknown))} unknown; there are {', '.join(NAMES)}")
    prepare_results(folder, f"progress-{seed}.json")
    progress = Progress(folder / f"progress-{seed}.json", fresh=fresh)
    try:
        fuzz_drivers(names, progress, golden, folder, seed, inputs)
        fuzz_endpoints(names, progress, golden, seed, share)
    except FuzzError as error:
        click.echo(error, err=True)
        sys.exit(1)
    click.echo("0 reports: " + ", ".join(f"{name} {progress.of(name)['inputs']:,}" for name in names))
