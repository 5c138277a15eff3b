"""The report of a siege: tables in Markdown, JSON, and a picture."""

import dataclasses
import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from ringmq.loadtest.load.beforehand import Say, drawn
from ringmq.loadtest.measuring.documents import machine
from ringmq.loadtest.measuring.plots import save_svg, svg_pyplot
from ringmq.loadtest.measuring.tables import markdown_table
from ringmq.loadtest.siege.canary import KINDS
from ringmq.loadtest.siege.figures import AttackFigures, Goals, LaneFigures
from ringmq.loadtest.siege.siege import SiegeReport
from ringmq.loadtest.siege.watch import WHOLE

MIB = 1 << 20
NAMED_WORKERS = 3
NAMED_CODES = 4


def document(report: SiegeReport, folder: Path, missed: list[str]) -> dict[str, Any]:
    """Return all figures, as plain JSON values."""
    return {
        "format": 1,
        "header": machine(folder),
        "missed": missed,
        **dataclasses.asdict(report),
    }


def tables(report: SiegeReport, goals: Goals) -> str:
    """Return tables by attack: the canary's figures for each kind of request, memory and refusals, and the figures of
    requests and consumers beside single attacks.
    """
    head = ["Attack", *KINDS, "normal after", "holds"]
    seen = [[attack.name, *(_cell(attack, kind) for kind in KINDS), _normal(attack), _holds(attack, goals)]
            for attack in report.attacks]  # fmt: skip
    used = [[attack.name, attack.aims_at, _memory(attack), *_refused(attack)] for attack in report.attacks]
    beside = [row for attack in report.attacks for row in _beside(attack, goals)]
    return (
        "p99 / longest silence in ms while the attack ran; p99 / longest silence afterwards. The worse of old and new "
        "connections.\n\n"
        + markdown_table(head, seen)
        + "\n"
        + markdown_table(["Attack", "Aims at", "Memory, MiB", "Connections", "Answers", "Log lines"], used)
        + ("\n" + markdown_table(["Attack", "Beside it", "Answered", "Figure", "Limit"], beside) if beside else "")
    )


def _beside(attack: AttackFigures, goals: Goals) -> list[list[str]]:
    """Rows of what one attack alone has, each with its limit."""
    rows = []
    for name, lane in attack.beside.items():
        figure = f"p99 {lane.p99_ms:,.0f}, silence {lane.silence_ms:,.0f} ms"
        limit = f"{attack.beside_p99_ms(goals):,.0f}, {goals.silence_ms:,.0f} ms"
        wrong = "".join(f"; {count} x {text}" for text, count in lane.wrong.items())
        rows.append([attack.name, name, f"{lane.answered:,} of {lane.count:,}", figure + wrong, limit])
    for limits in attack.limits:
        if limits.consumer_bytes and (consumer := attack.consumer):
            figure = f"{consumer.peak_bytes // MIB:,} MiB for {consumer.unpacked_bytes // MIB:,} MiB of bodies"
            polled = f"{consumer.polled:,} polled"
            rows.append([attack.name, "a consumer", polled, figure, f"{limits.consumer_bytes // MIB:,} MiB"])
        if limits.reader_us:
            figure = f"{attack.reader_us:,.1f} us of a read worker an answer"
            rows.append([attack.name, "the attacker", f"{attack.answered:,}", figure, f"{limits.reader_us:,.0f} us"])
    return rows


def _lanes(attack: AttackFigures, kind: str) -> list[LaneFigures]:
    return [lane for name, lane in attack.lanes.items() if name.startswith(f"{kind},")]


def _cell(attack: AttackFigures, kind: str) -> str:
    lanes = _lanes(attack, kind)
    names = ("p99_ms", "silence_ms", "after_p99_ms", "after_silence_ms")
    values = [max((getattr(lane, name) for lane in lanes), default=0.0) for name in names]
    return "{:,.0f} / {:,.0f}; {:,.0f} / {:,.0f}".format(*values)


def _normal(attack: AttackFigures) -> str:
    return f"{max((lane.normal_after_ms for lane in attack.lanes.values()), default=0.0) / 1000:.1f} s"


def _holds(attack: AttackFigures, goals: Goals) -> str:
    return "no" if attack.missed(goals) else "yes"


def _memory(attack: AttackFigures) -> str:
    parts = sorted(attack.memory_bytes.items(), key=lambda item: -item[1])
    workers = [f"{name} {size // MIB:,}" for name, size in parts if name != WHOLE][:NAMED_WORKERS]
    whole = attack.memory_bytes.get(WHOLE, 0)
    return f"{whole // MIB:,} of {attack.memory_max_bytes // MIB:,}: {', '.join(workers)}"


def _refused(attack: AttackFigures) -> tuple[str, str, str]:
    answers: Counter[str] = Counter()
    opened = closed = failed = 0
    for tally in attack.tallies:
        answers.update(tally["answers"])
        opened += tally["opened"]
        closed += tally["closed_by_peer"]
        failed += sum(tally["not_opened"].values())
    connections = f"{opened:,} opened, {closed:,} closed by the broker" + (f", {failed:,} failed" if failed else "")
    codes = ", ".join(f"{code}: {count:,}" for code, count in answers.most_common(NAMED_CODES))
    return connections, codes or "-", f"{attack.log_lines:,}"


def write_plot(report: SiegeReport, goals: Goals, path: Path) -> None:
    """Draw longest silence and p99 of the worst lane, and memory, for each attack, as SVG."""
    pyplot = svg_pyplot()
    names = [attack.name for attack in report.attacks]
    worst = {
        label: [max((getattr(lane, name) for lane in attack.lanes.values()), default=0.0) for attack in report.attacks]
        for label, name in (("longest silence", "silence_ms"), ("p99", "p99_ms"), ("normal after", "normal_after_ms"))
    }
    figure, (times, memory) = pyplot.subplots(1, 2, figsize=(12, 0.24 * len(names) + 1.5), sharey=True)
    rows = range(len(names))
    for label, mark in zip(worst, ("o", "|", "x"), strict=True):
        times.plot([max(value, 0.1) for value in worst[label]], rows, mark, label=label, ms=6)
    times.set_xscale("log")
    times.axvline(goals.silence_ms, color="#c0392b", lw=0.8)
    times.axvline(goals.p99_ms, color="#7f8c8d", lw=0.8)
    times.set_xlabel("ms, the worst kind of request")
    times.set_yticks(rows, names, fontsize=7)
    times.legend(fontsize=7)
    memory.barh(rows, [attack.memory_bytes.get(WHOLE, 0) / MIB for attack in report.attacks], color="#2980b9")
    memory.plot([attack.memory_max_bytes / MIB for attack in report.attacks], rows, "|", color="#c0392b", ms=8)
    memory.set_xlabel("memory, MiB; red: ringmqMemoryMax")
    times.invert_yaxis()
    for axis in (times, memory):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    save_svg(figure, path)


def write(report: SiegeReport, goals: Goals, folder: Path, say: Say = print) -> str:
    """Write siege.json, siege.md and siege.svg into `folder`. Return the text of siege.md."""
    missed = report.missed(goals)
    text = tables(report, goals) + "\n" + closing(report, missed)
    (folder / "siege.json").write_text(json.dumps(document(report, folder, missed), indent=1) + "\n")
    (folder / "siege.md").write_text(text)
    if not drawn(partial(write_plot, report, goals), folder / "siege.svg", say):
        say("siege.json and siege.md have the figures")
    return text


def closing(report: SiegeReport, missed: list[str]) -> str:
    """Return the sums over all attacks, and each missed goal."""
    deaths = sum(len(attack.deaths) for attack in report.attacks)
    lines = [
        f"{len(report.attacks)} attacks in {report.elapsed_s / 60:.0f} minutes, seed {report.options.seed}: "
        f"{report.sent:,} messages of the canary kept, {len(report.violations)} lost, wrong or unreadable, "
        f"{report.failed_starts} failed starts, {deaths} workers ended, {len(missed)} goals missed."
    ]
    return "\n".join([*lines, *(f"- {text}" for text in missed)]) + "\n"
