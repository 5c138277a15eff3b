"""The main function of a bench: options, checks before the work, rounds, results, exit status."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ringmq.loadtest.load.beforehand import announce_picture, drawn, need_packages, prepare_results
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.measuring.documents import FORMAT, Document, goal_documents, machine, silent, summary_document
from ringmq.loadtest.measuring.measurement import Summary, summarize
from ringmq.loadtest.measuring.rounds import Row, Session, named, run_rounds
from ringmq.loadtest.measuring.tables import report_text

Options = argparse.Namespace


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def document(session: Session, folder: Path, options: Mapping[str, object] = MappingProxyType({})) -> Document:
    """Return all measured values, with the options and other circumstances, as plain JSON values."""
    plain = {name: value for name, value in options.items() if isinstance(value, bool | int | float | str)}
    header = {**machine(folder), **plain, "rounds": session.rounds, **session.header()}
    return {"format": FORMAT, "header": header, "rows": [_row_document(session, row) for row in session.rows]}


def _row_document(session: Session, row: Row) -> Document:
    runs = session.runs.get(row.name, {})
    summaries: dict[str, Summary] = {side: summarize(measured) for side, measured in runs.items()}
    return {
        "name": row.name,
        "title": row.title,
        "metric": row.metric,
        "unit": row.unit,
        **({"place": dict(row.place)} if row.place else {}),
        "systems": {side: summary_document(summary, runs[side]) for side, summary in summaries.items()},
        "goals": goal_documents(row.goals, summaries),
    }


@dataclass(frozen=True)
class Command:
    """One bench. `opened` yields the session of a run, and clears up behind it. `table` is printed.

    `files`: names of the results. The kinds are `.json` (the document), `.md` (the text), others (by `write`) and at
    last `.svg` (by `draw`).
    """

    prog: str
    about: str
    folder: str
    opened: Callable[[Options], AbstractContextManager[Session]]
    table: Callable[[Document], str]
    rows: Sequence[Row] = ()
    files: Sequence[str] = ()
    rounds: int | None = 3
    seconds: float | None = 5.0
    """None: the bench has no such option."""
    options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    quick: Mapping[str, object] = field(default_factory=dict)
    """The options of a run that only shows whether the bench works. Without them there is no `--quick`."""
    check: Callable[[Options], None] = lambda options: None
    """Completes the options. Raises ValueError for a wrong one."""
    separator: str = ","
    """Between the names of rows."""
    needed_bytes: Callable[[Options], int] = lambda options: 0
    draw: Callable[[Document, Path], None] | None = None
    write: Callable[[Document, Path], None] | None = None
    faults: Callable[[Document], list[str]] = silent
    """The reasons for exit status 1."""
    conditions: str = ""
    """The line about the circumstances, with names of the document's header in braces."""
    lists_goals: bool = True
    """False: the table has the goals."""

    def text(self, report: Document) -> str:
        """Return the printed report."""
        conditions = self.conditions.format_map(report["header"])
        return report_text(report, conditions, self.table(report), lists_goals=self.lists_goals)

    def parse(self, arguments: Sequence[str] | None = None) -> Options:
        """Parse the command line."""
        parser = argparse.ArgumentParser(prog=self.prog, description=self.about.split("\n\n")[0])
        if self.rows:
            names = f"{self.separator} ".join(row.name for row in self.rows)
            parser.add_argument("--rows", default="", help=f"names, separated by {self.separator}: {names}")
        if self.rounds is not None:
            parser.add_argument("--rounds", type=int, default=self.rounds, help="interleaved rounds (%(default)s)")
        if self.seconds is not None:
            parser.add_argument("--seconds", type=float, default=self.seconds, help="length of one run (%(default)s)")
        parser.add_argument("--folder", type=Path, default=Path(self.folder), help="stores, results (%(default)s)")
        if self.quick:
            parser.add_argument("--quick", action="store_true", help="one short round, small sizes: does it work?")
        if self.draw is not None:
            parser.add_argument("--plot", type=Path, metavar="JSON", help="draw the picture of these results, and end")
        self.options(parser)
        options = parser.parse_args(arguments)
        if self.quick and options.quick:
            vars(options).update(self.quick)
        try:
            if self.rows:
                options.row_list = named(self.rows, split(options.rows, self.separator))
            self.check(options)
        except ValueError as error:
            parser.error(str(error))
        return options

    @ended_by_sigterm()
    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run, print the report and write the results. An interrupted run keeps what it has measured.

        Returns 1 if there is a reason.
        """
        options = self.parse(arguments)
        if self.draw is not None and options.plot is not None:
            need_packages("--plot", "loadtest", "matplotlib")
            options.folder.mkdir(parents=True, exist_ok=True)
            self.draw(json.loads(options.plot.read_text()), options.folder / self.files[-1])
            return 0
        prepare_results(options.folder, *self.files, needed_bytes=self.needed_bytes(options))
        if self.draw is not None:
            announce_picture(say)
        with self.opened(options) as session:
            try:
                run_rounds(session, say)
            finally:
                report = document(session, options.folder, vars(options))
                text = self.text(report)
                written = self._write(report, text, options.folder)
                print(text)
        if written:
            print("written: " + ", ".join(map(str, written)))
        faults = self.faults(report)
        if faults:
            print("short: " + "; ".join(faults))
        return int(bool(faults))

    def _write(self, report: Document, text: str, folder: Path) -> list[Path]:
        """Write the results. Returns those that were written."""
        written = []
        for path in (folder / name for name in self.files):
            if path.suffix == ".json":
                path.write_text(json.dumps(report, indent=1) + "\n")
            elif path.suffix == ".md":
                path.write_text(text)
            elif path.suffix == ".svg" and self.draw is not None:
                if not drawn(partial(self.draw, report), path):
                    continue
            elif self.write is not None:
                self.write(report, path)
            written.append(path)
        return written


def split(text: str, separator: str = ",") -> list[str]:
    """Return the names in the value of an option."""
    return [name.strip() for name in text.split(separator) if name.strip()]
