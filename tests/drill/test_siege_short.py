"""The siege's short form: attacks of two seconds on one broker; `make siege` is the long one."""

from pathlib import Path

import pytest

from ringmq.loadtest.siege.figures import Goals
from ringmq.loadtest.siege.siege import SiegeOptions, run_siege

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]
ROWS = [
    ("half-frames", "churn"),
    ("announced-sizes",),
    ("byte-wise", "queue-locks"),
    ("aborted-connections",),
    ("slow-readers",),
    ("false-master",),
]
SETTINGS: dict[str, object] = {"mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 6000}
SHARED_MACHINE = Goals(silence_ms=20_000, p99_ms=20_000, normal_after_ms=20_000)  # other tests run beside this one


def test_short_attacks_stop_nobody(tmp_path: Path) -> None:
    lines: list[str] = []
    options = SiegeOptions(seconds=2.0, after_s=1.0, settings=SETTINGS)
    report = run_siege(tmp_path, ROWS, options, lines.append)
    assert report.missed(SHARED_MACHINE) == [], "\n".join(lines)
    assert report.sent > 300
    for attack in report.attacks:
        assert attack.tallies and sum(tally["opened"] for tally in attack.tallies) > 0, attack.name
        assert len(attack.lanes) == 14 and all(lane.count for lane in attack.lanes.values()), attack.name
