"""docs/monitoring.md says what the code shows."""

from pathlib import Path

from ringmq.broker.exporter.table import markdown_rows

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_table_of_the_code() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    table = page.partition("| Metric | Kind | Labels | What |\n|---|---|---|---|\n")[2]
    assert table.splitlines() == markdown_rows()


def test_the_page_has_every_alert() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    rules = (ROOT / "monitoring" / "alerts.yml").read_text()
    for line in rules.splitlines():
        if "- alert:" in line:
            assert f"| {line.split()[-1]} |" in page
