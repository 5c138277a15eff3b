"""`<root>/config/haOrder.json`: what is to be done to the closed store before it is opened again.

A running broker leaves the order and ends its workers; the start performs it and takes it away. One that a crash left
behind is performed by the next start: every action can be repeated.

    {"action": "cut", "offset": 4096}           the log ends there, the rest goes to salvage/
    {"action": "rebase", "offset": 1073741824}  the log begins and ends there, all that it had goes to salvage/
    {"action": "adopt", "offset": 4096, "end": 9000, "source": "10.0.0.2:10911", "is_cut": false}
                                                cut, then [offset, end) of the log at `source` is appended
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ringmq.store import layout, markers
from ringmq.store.adoption import AdoptionError, ReadChunk, adopt
from ringmq.store.config import StoreConfig
from ringmq.store.recovery import recover
from ringmq.store.salvage import SalvageError, cut, rebase
from ringmq.store.write_hold import forget_adopted

ORDER_FILE = "haOrder.json"
CUT = "cut"
REBASE = "rebase"
ADOPT = "adopt"


@dataclass(frozen=True, slots=True)
class StoreOrder:
    """One order; the fields of the file."""

    action: str
    offset: int
    end: int = 0  # adopt: where the other log ends
    source: str = ""  # adopt: host:port of the broker that has it
    is_cut: bool = False  # adopt: what stands behind `offset` is of this adoption already


OpenSource = Callable[[str], contextlib.AbstractContextManager[ReadChunk]]
"""host:port of a broker -> a reader of its log. Raises OSError."""
TakeTables = Callable[[Path, str], list[str]]
"""Makes the config files of a store (root) say what the broker at host:port says, before its whole log is taken over;
lines for the operator. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Performed:
    """What was done: lines for the operator, and from where on the log is another broker's, None without such."""

    told: list[str]
    adopted_from: int | None = None


def write_order(root: Path, order: StoreOrder) -> None:
    """Leave an order, durably; it replaces one that is there. Raises OSError."""
    (root / layout.CONFIG).mkdir(parents=True, exist_ok=True)
    markers.replace_file(root / layout.CONFIG / ORDER_FILE, json.dumps(asdict(order)).encode())


def read_order(root: Path) -> StoreOrder | None:
    """The order that waits, None without one. SalvageError when the file cannot be one."""
    path = root / layout.CONFIG / ORDER_FILE
    try:
        values = json.loads(path.read_bytes())
        order = StoreOrder(**values)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise SalvageError(f"{path}: not an order ({error}); remove it to start with the store as it is") from error
    numbers = all(type(value) is int and value >= 0 for value in (order.offset, order.end))
    if order.action not in (CUT, REBASE, ADOPT) or not numbers or type(order.source) is not str:
        raise SalvageError(f"{path}: not an order ({values}); remove it to start with the store as it is")
    return order


def remove_order(root: Path) -> None:
    """Take the order away; none is there afterwards."""
    with contextlib.suppress(FileNotFoundError):
        (root / layout.CONFIG / ORDER_FILE).unlink()
        markers.sync_directory(root / layout.CONFIG)


def perform(
    config: StoreConfig, open_source: OpenSource, take_tables: TakeTables = lambda root, address: []
) -> Performed:
    """Do what the order says, if there is one, and take it away.

    The caller has the store's lock and recovers it afterwards. A log that cannot be taken over to its end is taken over
    as far as it goes, and writes stay held for the slave that has the rest. SalvageError, StoreLoadError,
    ConfigFileError and OSError leave the order for the next start.
    """
    root = config.root
    order = read_order(root)
    if order is None:
        return Performed([])
    told = [f"order for the store: {order.action} at {order.offset}"]
    if order.action == REBASE:
        told.append(rebase(config, order.offset).text())
    elif not order.is_cut:
        report = cut(config, order.offset)
        told.append(report.text())
        end_offset = report.end_offset
        if order.action == ADOPT:  # queues and index end there, too, before the log goes on with other records
            end_offset = recover(config).append_offset
        order = replace(order, offset=end_offset, is_cut=True)
    if order.action == ADOPT:
        write_order(root, order)
        told += _adopt(config, order, open_source, take_tables)
    remove_order(root)
    return Performed(told, order.offset if order.action == ADOPT else None)


def _adopt(config: StoreConfig, order: StoreOrder, open_source: OpenSource, take_tables: TakeTables) -> list[str]:
    try:
        # Where nothing of our log stays, what our tables say is of a disk that has lost them, and of the clients that
        # came before anybody noticed. Elsewhere ours are newer than a slave's copy: deletions in it are not undone.
        told = [] if order.offset else take_tables(config.root, order.source)
        with open_source(order.source) as read_chunk:
            end = adopt(config, order.offset, order.end, read_chunk)
    except AdoptionError as error:
        return [f"the log of {order.source} was taken over up to {error.end_offset}: {error}"]
    except OSError as error:
        return [f"nothing of the log of {order.source} was taken over: {error}"]
    forget_adopted(config.root, order.source, order.end)
    return [*told, f"the log of {order.source} was taken over from {order.offset} to {end}"]
