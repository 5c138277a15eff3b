"""The document of a bench: plain JSON values of everything that was measured, and of the machine."""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringmq.loadtest.load.warm_memory import free_pages_go_back
from ringmq.loadtest.measuring.measurement import RINGMQ, Goal, Measurement, Summary, evaluate

FORMAT = 2
Document = dict[str, Any]


def machine(folder: Path) -> Document:
    """Return processor, memory, kernel and file system."""
    model = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) // 1024 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kernel": platform.release(),
        "processor": model[0] if model else platform.machine(),
        "cpus": os.cpu_count(),
        "memory_mib": memory[0] if memory else None,
        "free_pages_go_back_to_a_host": free_pages_go_back(),
        "file_system": _file_system(folder),
        "python": platform.python_version(),
        "java": _java_version(),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _file_system(folder: Path) -> str:
    """Return type and mount point of the longest mount that holds `folder`."""
    best = ("", "unknown")
    for line in _lines("/proc/mounts"):
        point, kind = line.split()[1:3]
        if folder.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return f"{best[1]} at {best[0]}"


def _java_version() -> str | None:
    if shutil.which("java") is None:
        return None
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60)
    return (done.stderr.splitlines() or [""])[0]


def goal_documents(goals: Sequence[Goal], summaries: Mapping[str, Summary]) -> list[Document]:
    """Return each goal with its result."""
    return [
        {
            "metric": verdict.goal.metric,
            "reference": verdict.goal.reference,
            "goal": verdict.goal.text(),
            "value": verdict.value,
            "met": verdict.met,
        }
        for verdict in (evaluate(goal, summaries) for goal in goals)
    ]


def summary_document(summary: Summary, runs: Sequence[Measurement]) -> Document:
    """Return a summary with all of its runs."""
    return {
        "median": dict(summary.median),
        "spread": dict(summary.spread),
        "runs": summary.runs,
        "counted": summary.counted,
        "notes": list(summary.notes),
        "raw": [{"values": dict(run.values), "ok": run.ok, "note": run.note, "report": dict(run.raw)} for run in runs],
    }


def median(row: Document, side: str = RINGMQ) -> Mapping[str, float]:
    """Return the medians of a row's runs on one side, nothing if none of them counts."""
    found: Mapping[str, float] = row["systems"].get(side, {}).get("median", {})
    return found


def runs_of(row: Document, side: str = RINGMQ) -> list[Measurement]:
    """Return the runs of a row on one side."""
    raw = row["systems"].get(side, {}).get("raw", [])
    return [Measurement(run["values"], run["ok"], run["note"], run["report"]) for run in raw]


def silent(report: Document) -> list[str]:
    """Return rows whose runs on RingMQ do not count."""
    ours = [(row["name"], row["systems"].get(RINGMQ)) for row in report["rows"]]
    return [f"{name}: no run counts" for name, measured in ours if measured and not measured["counted"]]


def uncounted(report: Document) -> list[str]:
    """Return rows without a run that counts, also those that were not run."""
    ours = [(row["name"], row["systems"].get(RINGMQ)) for row in report["rows"]]
    return [f"{name}: no run counts" for name, measured in ours if not measured or not measured["counted"]]


def missed(report: Document) -> list[str]:
    """Return goals that were evaluated and not reached."""
    goals = [(row["name"], goal) for row in report["rows"] for goal in row["goals"]]
    return [f"{name}: {goal['metric']}" for name, goal in goals if goal["met"] is False]
