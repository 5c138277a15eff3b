"""The start of a slave as the master: the copy of the former master's POP memory becomes this broker's own.

It is as after a power cut of the former master: what came after its last snapshot that has arrived is not in the copy.
The former master may have put check points of open messages into the log since, at its stop, and consumer offsets
behind them. Then the records in the log tell what is open, and the copy does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringmq.broker.config.run_config import store_config
from ringmq.pop.copy_mark import own_copy
from ringmq.pop.log_place import LogPlace
from ringmq.pop.names import IDS_END, Names
from ringmq.pop.record_scan import RecordScan
from ringmq.services.kit.open_work import StoreLook
from ringmq.store.message_store import MessageStore

LAST_SECONDS = "pops and acks of its last two seconds may come again"


def is_behind_records(look: StoreLook, header: Any) -> bool:
    """True if check points were written into the log behind the moment of the copy. Raises OSError."""
    end, *_ = LogPlace.of(header).end
    scan = RecordScan(MessageStore(store_config(look.config)), lambda topic, queue_id: -1)
    return scan.has_check_point_behind(end, int(look.plane.watermarks.dispatched_offset), look.log_end)


def take_copy(names: Names, folder: Path, *, was_cut: bool) -> None:
    """Make the copy this broker's own. The former master may have reserved ids since, and copies of its last messages
    may have them: these are passed over. Raises OSError."""
    if was_cut:
        names.pass_over(IDS_END - names.ids_left)
    own_copy(folder)
