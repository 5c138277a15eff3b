"""`ringmq store repair`: the repairs of a start, on a store without a broker."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import click

from ringmq.cli.output import print_json, say, say_lines
from ringmq.cli.store_commands import store
from ringmq.cli.store_folder import settings_of, store_options
from ringmq.client.extras import not_installed


def _check_rights(config: Any) -> None:
    """Raise PermissionError for a folder in which a repair could not move files. It would find out after long reads."""
    from ringmq.store import layout

    queues = (config.root / name for name in (layout.CONSUME_QUEUE, layout.BATCH_CONSUME_QUEUE))
    each = [folder for kind in queues if kind.is_dir() for folder in (kind, *kind.glob("*/"), *kind.glob("*/*/"))]
    for folder in (config.root, *config.commit_log_directories, config.root / layout.INDEX, *each):
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


@store.command()
@store_options
@click.option("--dry-run", is_flag=True, help="Name the repairs and change nothing.")
@click.option("--quick", is_flag=True, help="Read what a start reads: the newest files of log and queues.")
@click.option("--accept-loss", is_flag=True, help="Give up messages whose log files are missing or cut, and name them.")
def repair(
    folder: Path, config: Path | None, settings: tuple[str, ...], output: str, dry_run: bool, accept_loss: bool,
    quick: bool,
) -> None:  # fmt: skip
    """Repair log, queues and index of FOLDER: cut torn records, move unusable files away.

    All queue files and the index are compared with the log. Everything that is moved or cut is kept in ringmq.cut. The
    next start makes missing entries from the log.
    """
    from ringmq.ipc.guests import store_entries
    from ringmq.store.config import StoreConfig
    from ringmq.store.inferred_config import config_for_folder
    from ringmq.store.mapped_file import StoreLoadError
    from ringmq.store.store_format import StoreFormatError, check_format
    from ringmq.store.store_lock import StoreLock, StoreLockedError
    from ringmq.store.store_owner import ForeignStoreError, check_owner

    try:
        from ringmq.store.repair import planned_repairs
        from ringmq.store.repair import repair as repair_store
    except ModuleNotFoundError as error:
        raise click.ClickException(not_installed("ringmq store repair", error.name, "broker")) from error

    def progress(step: str) -> None:
        if sys.stderr.isatty():
            say(step, err=True)

    lock = None
    try:
        known = settings_of(folder, config, settings)
        check_format(folder)
        check_owner(StoreConfig(folder, known.get("commit_log_directories", ())), store_entries())
        lock = StoreLock(folder)
        chosen = config_for_folder(folder, **known)
        _check_rights(chosen)
        work = planned_repairs if dry_run else repair_store
        done = work(chosen, accept_loss=accept_loss, thorough=not quick, tell=progress)
    except (StoreLoadError, StoreLockedError, StoreFormatError, ForeignStoreError) as error:
        raise click.ClickException(str(error)) from error
    except PermissionError:
        raise
    except OSError as error:
        raise click.ClickException(f"{error.filename or folder}: {error.strerror or error}") from error
    finally:
        if lock is not None:
            lock.close()
    if output == "json":
        print_json({"append_offset": done.append_offset, "rebuild_from": done.rebuild_from, "repairs": done.lines})
        return
    for line in done.lines:
        say(line)
    say_lines(done.text())
