"""The master's progress on a slave, when its log is cut."""

from pathlib import Path

import pytest

from ringmq.broker.log_cut import forget_behind
from ringmq.timer.master_timers import MasterTimers, read_master_timers, write_master_timers


@pytest.mark.parametrize(("needed", "is_kept"), [(4097, False), (4096, True)])
def test_a_cut_ends_the_masters_progress_behind_it(tmp_path: Path, needed: int, is_kept: bool) -> None:
    """Copies that the progress counts as delivered are gone."""
    write_master_timers(tmp_path, MasterTimers(1, 0, needed, needed))
    forget_behind(tmp_path, 4096)
    assert (read_master_timers(tmp_path) is not None) == is_kept
