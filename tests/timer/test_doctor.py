"""The look of `ringmq doctor` at waiting timer messages."""

from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.doctor.facts import DiskFacts
from ringmq.doctor.finding import OK, WARN
from ringmq.doctor.gather_store import gather_store
from ringmq.timer.doctor import check_room
from tests.store.conftest import basic_copy, golden_basic  # noqa: F401
from tests.store.golden_stores import basic_config


@pytest.mark.parametrize(("used", "expected"), [(20, OK), (74, OK), (75, WARN)])
def test_records_of_waiting_messages_need_room(used: int, expected: str) -> None:
    disk, config = DiskFacts("/s", "ext4", "rw", used, 1, 1), BrokerConfig(disk_max_used_space_ratio=75)
    (found,) = check_room(5, disk, config)
    assert (found.name, found.level, bool(found.advice)) == ("timer messages", expected, expected != OK)
    assert not [*check_room(0, disk, config)]


def test_counts_are_read_and_damaged_ones_hide_nothing(basic_copy: Path) -> None:  # noqa: F811
    path = basic_copy / "config" / "timermetrics"
    path.write_text('{"timingCount": {"T": {"count": 3}, "U": {"count": -1}, "V": {"count": 4}}}')
    assert gather_store(basic_config(basic_copy)).of_guests["timer"] == 7
    path.with_name("timermetrics.bak").unlink(missing_ok=True)
    path.write_text('{"timingCount": {')
    facts = gather_store(basic_config(basic_copy))
    assert (facts.error, facts.of_guests["timer"]) == ("", 0)
    assert facts.tail is not None
