"""`ringmq store inspect|unserved|verify`: look at a store folder while its broker runs or not.

Beside a running broker the confirm offset of its watermark page bounds every read. Without one the end of the log does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ringmq.cli.command_group import CommandGroup
from ringmq.cli.guest_commands import add_commands
from ringmq.cli.output import print_json, print_line, print_rows, say, say_again
from ringmq.cli.store_folder import open_folder, store_options
from ringmq.client.extras import not_installed

LIMIT = 20


@click.group(cls=CommandGroup)
def store() -> None:
    """Inspect and verify a store folder, count what waits there."""


add_commands(store, "store")


@store.command()
@store_options
@click.option("--records", is_flag=True, help="Decode records instead of listing files and queues.")
@click.option("--salvage", metavar="NAME", help="Decode the records of this salvage file.")
@click.option("--from", "from_offset", type=int, default=0, help="First offset, of the log or of the queue.")
@click.option("--to", "to_offset", type=int, default=(1 << 62), show_default="end", help="Log offset to stop at.")
@click.option("--limit", type=click.IntRange(1), default=LIMIT, show_default=True, help="Most records, or windows.")
@click.option("--topic", help="Only this topic; with --records its queue --queue by queue offset.")
@click.option("--queue", "queue_id", type=int, default=0, show_default=True, help="Queue id for --records --topic.")
def inspect(
    folder: Path, config: Path | None, settings: tuple[str, ...], output: str, records: bool, salvage: str | None,
    from_offset: int, to_offset: int, limit: int, topic: str | None, queue_id: int,
) -> None:  # fmt: skip
    """List files, ranges, topics and queues of FOLDER, or decode its records."""
    from ringmq.store import inspect as look

    found, readable, watermarks = open_folder(folder, config, settings)
    rows: Iterable[dict[str, Any]]
    if salvage is not None:
        try:
            _print_records(output, look.salvage_records(found, salvage, from_offset, limit))
        except FileNotFoundError as error:
            raise click.ClickException(str(error)) from error
        return
    if records:
        if topic is None:
            rows = look.log_records(found, readable, from_offset, to_offset, limit)
        else:
            rows = look.queue_records(found, readable, topic, queue_id, from_offset, limit)
        _print_records(output, rows)
        return
    facts = look.overview(found, readable)
    facts["live_owner"] = watermarks.live
    tables = {
        "log_files": look.log_files(found, readable),
        "queues": look.queues(found, readable, topic),
        "index_files": _index_rows(found),
        "salvage_files": look.salvage_files(found),
    }
    for guest_table in _guest_tables(found, topic, limit):
        facts[f"{guest_table.name}_total"] = guest_table.total
        tables[guest_table.name] = guest_table.rows
    if output == "json":
        print_json({**facts, **tables})
        return
    for name, value in facts.items():
        say(f"{name}: {value}")
    for name, table in tables.items():
        say()
        say(name)
        print_rows("table", table, list(table[0]) if table else ["(none)"])


@store.command()
@store_options
def unserved(folder: Path, config: Path | None, settings: tuple[str, ...], output: str) -> None:
    """Count what a stock broker has left in FOLDER that RingMQ does not serve yet; exit status 1 when there is some.

    A broker refuses to start on such a store unless told --accept-unserved. Ask while no broker runs.
    """
    from msgspec import structs

    from ringmq.store.config_files import ConfigFileError
    from ringmq.store.mapped_file import StoreLoadError
    from ringmq.store.unsupported import find_unsupported

    found, _, _ = open_folder(folder, config, settings)
    try:
        rows = [structs.asdict(entry) for entry in find_unsupported(found.config)]
    except PermissionError:
        raise
    except (ConfigFileError, StoreLoadError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if rows or output == "json":
        print_rows(output, rows, ["kind", "count", "what"])
    else:
        say("nothing waits")
    sys.exit(1 if rows else 0)


def _index_rows(found: Any) -> list[dict[str, Any]]:
    from ringmq.store import inspect as look
    from ringmq.store.mapped_file import StoreLoadError

    try:
        return look.index_files(found)
    except StoreLoadError as error:
        say(f"index files are left out: {error}", err=True)
        return []


def _guest_tables(found: Any, topic: str | None, limit: int) -> Iterator[Any]:
    """Of `ringmq.ipc.guests.Table`."""
    from ringmq.ipc.guests import parts

    for inspect_guest in parts("inspect"):
        try:
            table = inspect_guest(found, topic, limit)
        except PermissionError:
            raise
        except OSError as error:
            say(f"a table is left out: {error}", err=True)
            continue
        if table is not None:
            yield table


def _print_records(output: str, rows: Iterable[dict[str, Any]]) -> None:
    if output == "json":
        for row in rows:
            print_line(row)
        return
    columns = ["commit_log_offset", "size", "topic", "queue_id", "queue_offset", "store_time_ms", "body", "properties"]
    shown = [
        {**row, "body": row.get("error") or repr(row["body"][:40]), "properties": _short(row.get("properties", {}))}
        for row in rows
    ]
    print_rows("table", shown, [*columns, "warning"] if any("warning" in row for row in shown) else columns)


def _short(properties: dict[str, str]) -> str:
    text = " ".join(f"{name}={value}" for name, value in properties.items())
    return text if len(text) <= 80 else text[:79] + "…"


@store.command()
@store_options
@click.option("--no-index", is_flag=True, help="Leave the index files out.")
@click.option(
    "--cross-check/--no-cross-check",
    default=False,
    help="Derive tags and keys a second time, by numba kernels of the extra `kernels` (starts 2 to 5 s later).",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
def verify(
    folder: Path, config: Path | None, settings: tuple[str, ...], output: str, no_index: bool, cross_check: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Check every record, unit and index entry of FOLDER; exit status 1 when there are errors."""
    try:
        from ringmq.ipc.guests import parts
        from ringmq.store.verify import ERROR, can_cross_check
        from ringmq.store.verify import verify as verify_store
    except ModuleNotFoundError as error:
        raise click.ClickException(not_installed("ringmq store verify", error.name, "broker")) from error

    if cross_check and not can_cross_check():
        say("no cross-check: numba is not installed, the extra `kernels` has it", err=True)
    found, readable, watermarks = open_folder(folder, config, settings)
    is_closed = not watermarks.live and watermarks.lock_holder is None

    def progress(stage: str, done: int, total: int) -> None:
        if not quiet and sys.stderr.isatty():
            share, mib = done / max(1, total), total / (1 << 20)
            say_again(f"{stage} {share:4.0%} of {mib:.0f} MiB", is_last=done >= total)

    report = verify_store(
        found, readable, progress=progress, cross_check=cross_check, check_index=not no_index, is_closed=is_closed
    )
    guest_faults = [fault for find in parts("damage") for fault in find(found)] if is_closed else []
    for place, text in guest_faults:
        report.add(ERROR, place, text)
    counts = {
        name: getattr(report, name)
        for name in ("min_offset", "readable_offset", "records", "blanks", "queues", "units", "index_files",
                     "index_entries", "errors", "warnings", "cross_checked", "deleted_records", "undispatched")
    }  # fmt: skip
    counts["not_indexed"] = 0 if report.not_indexed is None else report.not_indexed.count
    findings = [{"severity": f.severity, "place": f.place, "text": f.text} for f in report.findings]
    if output == "json":
        print_json({**counts, "live_owner": watermarks.live, "findings": findings})
    else:
        for row in findings:
            say(f"{row['severity']}: {row['place']}: {row['text']}")
        say(
            f"{report.records} records, {report.units} units in {report.queues} queues, {report.index_entries} entries "
            f"in {report.index_files} index files up to {readable}: {report.errors} errors, {report.warnings} warnings"
        )
        if report.deleted_records:
            say(f"{report.deleted_records} records of deleted topics")
        if report.undispatched:
            text = "records are in the log alone: a start makes their entries in queues and index"
            say(f"{report.undispatched} {text}")
        if report.not_indexed is not None:
            say(f"{report.not_indexed}; look at memory and disk of the machine, and at the master's")
    if report.errors:
        if output != "json":
            only_guests = report.errors == len(guest_faults)
            say(GUEST_ADVICE if only_guests else _advice(found, report, is_closed))
        sys.exit(1)


GUEST_ADVICE = "the next start of the broker rebuilds these files from the log, no message is lost"


def _advice(found: Any, report: Any, is_closed: bool) -> str:
    """The next step after errors."""
    from ringmq.store.log_loss import loss_remedy, repair_command

    lost = loss_remedy(found.config) if is_closed else ""
    if lost:
        return lost
    if not report.bad_units and not report.is_index_bad:
        return "no command brings damaged records back: restore their log file from a copy, or look at a replica"
    first = "" if is_closed else "stop the broker. "
    return f"{first}to make these entries again from the log, run: {repair_command(found.config)}"
