"""`ringmq namesrv`: a name server in the foreground."""

from __future__ import annotations

import sys

import click


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Port (listenPort), default 9876; 0 = any free.")
@click.option("--host", metavar="ADDRESS", help="Address to listen on (bindAddress), default 127.0.0.1.")
@click.option("--kv-config", metavar="FILE", help="File of the key-value configuration (kvConfigPath).")
@click.option("-c", "--config", metavar="FILE", help="namesrv.conf with RocketMQ's property names.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Set one property; repeatable.")
def namesrv(
    port: int | None, host: str | None, kv_config: str | None, config: str | None, assignments: tuple[str, ...]
) -> None:
    """Run a name server; prints one line with `ready` when it serves. SIGTERM stops it cleanly."""
    from ringmq.namesrv.server import main

    options = {"--port": port, "--host": host, "--kv-config": kv_config, "--config": config}
    arguments = [f"{name}={value}" for name, value in options.items() if value is not None]
    sys.exit(main(arguments + [f"--set={assignment}" for assignment in assignments]))
