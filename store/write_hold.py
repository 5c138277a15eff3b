"""`<root>/config/ringmqWriteHold.json`: the slaves for which this master holds its writes, over every restart.

A list of `HeldFor`, and no file without such a slave. The file is written before a hold is reported. A decision
removes it, as does a complete adoption, or the slave when it comes back with a log that fits.
"""

import json
from collections.abc import Collection
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from ringmq.store import layout, markers
from ringmq.store.config_files import ConfigFileError, read_standard_json

HOLD_FILE = "ringmqWriteHold.json"
BY_HOST = -1
"""Broker id of a slave without one: a stock slave, or one that knows no broker port of its master."""


class HeldFor(Struct, frozen=True):
    """A slave whose log is longer than the master's or differs.

    Offsets of the CommitLog, the address as the slave gave it.
    """

    broker_id: int
    address: str
    common_offset: int
    master_offset: int
    slave_offset: int


def read_hold(root: Path) -> tuple[HeldFor, ...]:
    """Return the slaves for which writes are held. Raises ConfigFileError for a file that cannot be RingMQ's."""
    path = root / layout.CONFIG / HOLD_FILE
    try:
        held = tuple(HeldFor(**entry) for entry in read_standard_json(path))
    except FileNotFoundError:
        return ()
    except TypeError as error:
        raise ConfigFileError(f"{path}: holds no list of slaves with held writes: {error}", [path]) from error
    for entry in held:
        numbers = (entry.broker_id, entry.common_offset, entry.master_offset, entry.slave_offset)
        if type(entry.address) is not str or any(type(number) is not int for number in numbers):
            raise ConfigFileError(f"{path}: holds no list of slaves with held writes: {entry}", [path])
    return held


def write_hold(root: Path, held: Collection[HeldFor]) -> None:
    """Write the slaves durably. Without slaves remove the file. Raises OSError."""
    data = json.dumps([asdict(entry) for entry in held]).encode() if held else None
    markers.replace_or_remove(root / layout.CONFIG / HOLD_FILE, data)


def is_same_slave(held_id: int, held_address: str, broker_id: int, address: str) -> bool:
    """True if a slave may be the held one under another address.

    Addresses change when a process starts again. The end of a held slave's log does not, so compare it, too: two
    slaves may have one id by mistake.
    """
    host = address.rpartition(":")[0].strip("[]")
    return held_id == broker_id if held_id != BY_HOST else held_address == host


def forget_adopted(root: Path, address: str, end_offset: int) -> None:
    """Forget the slave at `address` after the adoption of its log up to `end_offset`.

    Raises OSError, ConfigFileError.
    """
    held = read_hold(root)
    taken = [entry for entry in held if entry.address == address and entry.slave_offset <= end_offset]
    ids = {entry.broker_id for entry in taken}
    left = [
        entry
        for entry in held
        if entry not in taken
        and not (
            entry.slave_offset == end_offset
            and any(is_same_slave(entry.broker_id, entry.address, broker_id, address) for broker_id in ids)
        )
    ]
    if len(left) < len(held):
        write_hold(root, left)
