"""What comes out of the replication matrix: one table in Markdown, and the plots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringmq.loadtest.markdown import Column, markdown_table
from ringmq.loadtest.matrix_cells import BODY_BYTES, POLICIES, TOPICS

Document = Mapping[str, Any]
COLUMNS = (
    Column("msg/s", "messages_per_s"),
    Column("consumed/s", "consumed_per_s"),
    Column("mean ms", "mean", "{:.2f}", 1e-3),
    Column("p99 ms", "p99", "{:.2f}", 1e-3),
    Column("p99.9 ms", "p99_9", "{:.2f}", 1e-3),
    Column("CPU master", "master_cpu", "{:.2f}"),
    Column("CPU slave", "slave_cpu", "{:.2f}"),
    Column("memory MiB", "memory_mib"),
    Column("disk MB/s", "disk_mb_per_s"),
    Column("wait ms a write", "disk_wait_ms", "{:.1f}"),
    Column("loopback MB/s", "loopback_mb_per_s"),
)
COLORS = ("#c0392b", "#2c6fbb", "#2e8b57")


def table(cells: Sequence[Document]) -> str:
    """One line per cell."""
    head = ["body", "mode", "policy", "topics", *(column.title for column in COLUMNS), "correct"]
    lines = []
    for cell in cells:
        mode = "produce, consume" if cell["consume"] else "produce"
        words = [_size(cell["body_bytes"]), mode, cell["policy"], str(cell["topics"])]
        words += [column.text(cell["values"]) for column in COLUMNS]
        words.append("yes" if cell["correct"] else f"**no**: {cell['note']}")
        lines.append(words)
    return markdown_table(head, lines)


def _size(body_bytes: int) -> str:
    return f"{body_bytes} B" if body_bytes < 1024 else f"{body_bytes // 1024} KiB"


def write_plots(cells: Sequence[Document], path: Path) -> None:
    """Throughput (above) and p99 (below) by topic count, one panel per body size, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(BODY_BYTES), figsize=(13, 7), sharex=True)
    for column, body_bytes in enumerate(BODY_BYTES):
        for row, (name, scale) in enumerate((("messages_per_s", 1.0), ("p99", 1e-3))):
            panel = axes[row][column]
            for consume in (False, True):
                for policy, color in zip(POLICIES, COLORS, strict=True):
                    points = _points(cells, body_bytes, consume, policy.name, name)
                    label = f"{policy.name}{', consumed' if consume else ''}"
                    style = "--" if consume else "-"
                    values = [scale * value for _, value in points]
                    panel.plot([at for at, _ in points], values, style, marker="o", ms=3, color=color, label=label)
            panel.set_xscale("log", base=2)
            panel.set_xticks(TOPICS, [str(topics) for topics in TOPICS])
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.3)
        axes[0][column].set_title(f"body {_size(body_bytes)}", fontsize=10)
        axes[1][column].set_xlabel("topics")
    axes[0][0].set_ylabel("messages per second")
    axes[1][0].set_ylabel("p99 of a send, ms")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=3, fontsize=8)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _points(
    cells: Sequence[Document], body_bytes: int, consume: bool, policy: str, name: str
) -> list[tuple[int, float]]:
    found = [
        cell for cell in cells if (cell["body_bytes"], cell["consume"], cell["policy"]) == (body_bytes, consume, policy)
    ]
    return sorted((cell["topics"], cell["values"][name]) for cell in found if name in cell["values"])
