"""`ringmq bench`: the side-by-side measurement; its options are those of `python -m ringmq.loadtest.bench`."""

import sys

import click


@click.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Measure stock RocketMQ, RingMQ and the ceiling side by side; `ringmq bench --help` lists the options."""
    from ringmq.loadtest.bench.main import main

    sys.exit(main(arguments))
