"""docs/monitoring.md says what the code shows."""

import re
from pathlib import Path

from ringmq.broker.exporter.table import METRICS, markdown_rows

ROOT = Path(__file__).parents[2]
ALERT = re.compile(
    r'- alert: (\w+)\n.*?for: (\w+)\n.*?severity: (\w+)\n.*?description: "(.*?)"\n',
    re.DOTALL,
)
EVERY_SERIES = {"cluster", "node_id", "node_type", "instance", "job"}


def test_the_page_has_the_table_of_the_code() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    table = page.partition("| Metric | Meaning |\n|---|---|\n")[2]
    assert table.splitlines() == markdown_rows()


def test_the_page_has_every_alert_as_its_rule_says_it() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    table = page.partition("| Alert | Severity | After | What to do |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    rules = (ROOT / "monitoring" / "alerts.yml").read_text()
    rows = [f"| {name} | {severity} | {after} | {text} |" for name, after, severity, text in ALERT.findall(rules)]
    assert len(rows) == rules.count("- alert:")
    assert table.splitlines() == rows


def test_alerts_and_panels_use_no_deprecated_name() -> None:
    deprecated = [name for name, metric in METRICS.items() if metric.help.startswith("Deprecated, use ")]
    assert deprecated
    for path in (ROOT / "monitoring").iterdir():
        assert not [name for name in deprecated if name in path.read_text()], path.name


def test_the_texts_of_alerts_name_labels_that_their_metrics_have() -> None:
    """promtool fills them in from made-up series."""
    for rule in (ROOT / "monitoring" / "alerts.yml").read_text().split("- alert:")[1:]:
        used = [metric for name, metric in METRICS.items() if re.search(rf"\b{name}(_bucket)?\b", rule)]
        labels = {label for metric in used for label in metric.labels}
        for named in re.findall(r"\$labels\.(\w+)", rule):
            assert named in labels | EVERY_SERIES, rule
