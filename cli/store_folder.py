"""The folder that each command of `ringmq store` gets: its options, its settings, and how it is opened."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from ringmq.cli.arguments import pairs
from ringmq.cli.output import output_option
from ringmq.remoting.properties_text import parse_properties, read_properties_text


def store_options(command: Any) -> Any:
    """Add the options of each command of a store folder. What its user may not read is named with the remedy."""

    @functools.wraps(command)
    def guarded(*, folder: Path, **options: Any) -> None:
        try:
            command(folder=folder, **options)
        except PermissionError as error:
            raise _not_readable(folder, error) from error

    result = guarded
    for option in (
        output_option,
        click.option(
            "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A store property, as in broker.conf."
        ),
        click.option(
            "-c", "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="broker.conf."
        ),
        click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path)),
    ):
        result = option(result)
    return result


def properties_of(config: Path | None, settings: tuple[str, ...]) -> dict[str, str]:
    """Return the properties of broker.conf and --set."""
    try:
        lines = parse_properties(read_properties_text(config)) if config else []
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{config}: {error}") from error
    values = {line.name: line.value for line in lines} | pairs(settings, "--set")
    return {name: value.strip() for name, value in values.items()}


def settings_of(folder: Path, config: Path | None, settings: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of StoreConfig that broker.conf and --set give for a store."""
    from ringmq.store.config import StoreConfig, StoreConfigError
    from ringmq.store.layout import CONSUME_QUEUE

    properties = properties_of(config, settings)
    try:
        given = StoreConfig.from_properties(folder, properties)
    except StoreConfigError as error:
        raise click.ClickException(str(error)) from error
    if not any(logs.is_dir() for logs in (*given.commit_log_directories, folder / CONSUME_QUEUE)):
        raise click.ClickException(f"{folder} is not a store: it lacks {given.commit_log_directories[0]}")
    fields = {
        "mappedFileSizeCommitLog": "commit_log_file_bytes",
        "mappedFileSizeConsumeQueue": "consume_queue_file_bytes",
        "mapperFileSizeBatchConsumeQueue": "batch_consume_queue_file_bytes",
        "maxHashSlotNum": "index_slots",
        "maxIndexNum": "index_entries",
        "messageIndexEnable": "message_index",
        "messageDelayLevel": "delay_levels_ms",
        "storePathCommitLog": "commit_log_directories",
    }
    return {field: getattr(given, field) for name, field in fields.items() if name in properties}


def _not_readable(folder: Path, error: PermissionError) -> click.ClickException:
    group = folder.stat().st_gid
    return click.ClickException(
        f"{error.filename}: permission denied; run this as the broker's user, or as a member of group {group}, which "
        f"owns {folder}"
    )


def open_folder(folder: Path, config: Path | None, settings: tuple[str, ...]) -> tuple[Any, int, Any]:
    """Return (MessageStore, readable offset, Watermarks). Raises PermissionError."""
    from ringmq.ipc.watermark import read_watermarks
    from ringmq.store.inferred_config import config_for_folder
    from ringmq.store.log_loss import LostLogError, loss_remedy
    from ringmq.store.mapped_file import StoreLoadError
    from ringmq.store.message_store import MessageStore
    from ringmq.store.store_format import StoreFormatError, check_format

    try:
        check_format(folder)
        known = settings_of(folder, config, settings)
        found = MessageStore(config_for_folder(folder, **known))
        try:
            found.commit_log.files.check_sizes()
        except StoreLoadError as error:
            raise LostLogError(str(error), loss_remedy(found.config)) from error
    except (StoreFormatError, StoreLoadError) as error:
        raise click.ClickException(str(error)) from error
    watermarks = read_watermarks(folder)
    # Dispatch may be a moment behind the confirm offset; what it has not reached is in no queue yet.
    live_bound = min(watermarks.confirm_offset, watermarks.dispatched_offset)
    if watermarks.live:
        return found, live_bound, watermarks
    is_owned = watermarks.lock_holder is not None  # by a stock broker, whose queues follow its log
    return found, found.dispatched_end() if is_owned else found.log_end(), watermarks
