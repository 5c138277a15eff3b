"""`make siege`: attacks on a broker with default settings, and their effect on an honest client."""

import os
import shutil
import sys
from pathlib import Path

import click

from ringmq.loadtest.load.beforehand import announce_picture, prepare_results
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.siege.attacks import ATTACKS, COMBINATIONS
from ringmq.loadtest.siege.figures import Goals
from ringmq.loadtest.siege.report import write
from ringmq.loadtest.siege.siege import SiegeOptions, run_siege

NAMES = tuple(attack.name for attack in ATTACKS)


def rows_of(only: str) -> list[tuple[str, ...]]:
    """Return the rows of `--only`, all for an empty text. Raises click.BadParameter.

    `a,b+c` is a, then b and c at once.
    """
    if not only:
        return [(name,) for name in NAMES] + list(COMBINATIONS)
    rows = [tuple(names.split("+")) for names in only.split(",") if names]
    if unknown := {name for names in rows for name in names} - set(NAMES):
        raise click.BadParameter(f"{', '.join(sorted(unknown))} unknown; there are {', '.join(NAMES)}")
    return rows


@click.command()
@click.option("--only", default="", help="Attacks, comma separated; a+b runs two at once.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--seconds", type=float, default=15.0, show_default=True, help="Length of an attack.")
@click.option("--after", "after_s", type=float, default=25.0, show_default=True, help="Seconds observed behind it.")
@click.option("--cpu", type=int, help="CPU of the attackers; default: the last one.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/siege"), show_default=True)
@click.option("--list", "list_only", is_flag=True, help="Show the attacks and end.")
@ended_by_sigterm()
def main(only: str, seed: int, seconds: float, after_s: float, cpu: int | None, folder: Path, list_only: bool) -> None:
    """Attack a broker with default settings. Exit status 1 if a goal was missed. Results in --folder."""
    if list_only:
        for attack in ATTACKS:
            click.echo(f"{attack.name:24}{attack.aims_at}")
        return
    rows = rows_of(only)
    prepare_results(folder, "siege.json", "siege.md", "siege.svg")
    announce_picture(lambda text: click.echo(text, err=True))
    stores = folder / "stores"
    shutil.rmtree(stores, ignore_errors=True)
    stores.mkdir(parents=True)
    cpu = max(os.sched_getaffinity(0)) if cpu is None else cpu
    options = SiegeOptions(seed=seed, seconds=seconds, after_s=after_s, cpu=cpu)
    click.echo(f"siege with seed {seed}: {len(rows)} attacks", err=True)
    try:
        report = run_siege(stores, rows, options, lambda text: click.echo(text, err=True))
        click.echo(write(report, Goals(), folder, lambda text: click.echo(text, err=True)))
    finally:
        shutil.rmtree(stores, ignore_errors=True)
    sys.exit(1 if report.missed(Goals()) else 0)
