"""Access to the shared-memory plane (native/src/plane/layout.h) in Python: make it, map it, use its tables.

The layout's one-writer rule holds for callers. Control alone changes tables and offsets, the supervisor alone creates,
and every process may find and get. `ipc/asks.py` has the asks of roles to one another.
"""

import mmap
import os
import time
from typing import Any

from msgspec import Struct, field

from ringmq.ipc.admission import Rule, publish_rules, published_rules
from ringmq.ipc.answerers import AnswererPlan, fill_answerer_plans
from ringmq.ipc.errors import PlaneFullError
from ringmq.ipc.ports import PARKED_SLOTS, PortPlan, Reader, fill_port_plans, readers_of
from ringmq.ipc.segment import create_segment, open_segment
from ringmq.ipc.tenure import AS_MASTER, Tenure, follows_master
from ringmq.ipc.workers import WORKERS, answerer_plans, port_plans
from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret

__all__ = ["NONE", "TAGS_MAX", "Capacity", "Plane", "PlaneFullError", "topic_config_word"]

NONE: int = lib.RMQ_NONE
TAGS_MAX: int = lib.RMQ_TAGS_MAX


class Capacity(Struct, frozen=True):
    """Sizes of tables and rings. The memory is sparse, so unused entries cost nothing."""

    topics: int = 65536
    queues: int = 262144
    groups: int = 65536
    subscriptions: int = 65536
    offsets: int = 524288
    parked_slots: int = PARKED_SLOTS
    commit_slots: int = 16384
    arrived_slots: int = 65536
    ports: tuple[PortPlan, ...] = field(default_factory=lambda: port_plans(WORKERS.rows(1)))
    answerers: tuple[AnswererPlan, ...] = field(default_factory=lambda: answerer_plans(WORKERS.rows(1)))


class Plane:
    """The mapped plane of one broker. Keep a reference to this object as long as its C struct is in use."""

    def __init__(self, name: str, base: mmap.mmap, watermarks: mmap.mmap) -> None:
        self.name = name
        self._base = base
        self._watermarks = watermarks
        self._arenas: dict[int, mmap.mmap] = {}
        """Mapped arenas by port."""
        self.struct: Any = ffi.new("struct rmq_plane *")
        self.struct.base = ffi.from_buffer("char *", base, require_writable=True)
        page = ffi.from_buffer("char *", watermarks, require_writable=True)
        self.struct.watermarks = ffi.cast("struct rmq_watermarks *", page)
        for role in range(lib.RMQ_ROLES_MAX):
            self.struct.event_fds[role] = -1
        self.header: Any = lib.rmq_plane_header_of(self.struct)
        self.watermarks: Any = self.struct.watermarks
        self.readers: tuple[Reader, ...] = readers_of(self.header)

    @classmethod
    def create(
        cls, name: str, capacity: Capacity, store: os.stat_result, start_id: int, name_secret: Any = None, *,
        tenure: Tenure = AS_MASTER,
    ) -> "Plane":  # fmt: skip
        """Make plane and watermark page for the store with the given stat. The supervisor calls it once.

        Members of the store's group may read both, as they may read the store. name_secret: the `uint64_t[2]` with
        which tables hash names and pairs of ids. It is new and random unless a test gives it. `tenure`: the first one.
        """
        sizes = _sizes(capacity)
        base = create_segment(name, "plane", lib.rmq_plane_bytes(sizes), readers=store.st_gid)
        page = create_segment(name, "watermarks", 4096, readers=store.st_gid)
        secret = table_secret() if name_secret is None else name_secret
        code = lib.rmq_plane_format(ffi.from_buffer("char *", base, require_writable=True), sizes, start_id, secret)
        if code < 0:
            raise ValueError(f"a plane of {capacity} cannot be made: {os.strerror(-code)}")
        plane = cls(name, base, page)
        marks = plane.watermarks
        marks.version, marks.start_id, marks.owner_pid = 1, start_id, os.getpid()
        marks.store_dev, marks.store_ino = store.st_dev, store.st_ino
        marks.tenure = tenure.word
        plane.header.ports.journal.owner = lib.rmq_journal_role(marks)
        return plane

    @classmethod
    def open(cls, name: str) -> "Plane":
        """Map the plane that the supervisor has made. Raises ValueError if another build has made it."""
        base = open_segment(name, "plane")
        if lib.rmq_plane_check(ffi.from_buffer("char *", base, require_writable=True), len(base)) < 0:
            raise ValueError(f"shared-memory plane {name} was made by another build of RingMQ")
        return cls(name, base, open_segment(name, "watermarks"))

    def stand(self, role: int) -> None:
        """Note that the owner of this role's port submits no requests in this tenure."""
        lib.rmq_port_stand(self.struct, self.port_of(role))

    @property
    def is_pop_compared(self) -> bool:
        """True if POP's memory has been compared with the log of this tenure."""
        return int(self.header.pop_compared) == int(self.watermarks.tenure)

    def pop_is_compared(self) -> None:
        """Note that it has been. The main process calls it before any worker runs, then the worker `pop`."""
        self.header.pop_compared = int(self.watermarks.tenure)

    def publish_tenure(self, tenure: Tenure) -> None:
        """Publish another tenure. All workers look at it. Only control calls it."""
        lib.rmq_tenure_publish(self.struct, tenure.word)

    def publish_watermarks(self) -> None:
        """Make the watermark page valid for readers outside the broker. The magic is stored last."""
        self.watermarks.magic = 0x5245544157514D52

    def port_of(self, role: int) -> int:
        """The number of the role's port. Raises KeyError if the role has none."""
        port = int(lib.rmq_port_find(self.struct, role))
        if port == NONE:
            raise KeyError(f"role {role} has no port")
        return port

    def arena_bytes(self) -> int:
        """Bytes of the arenas of all ports."""
        return sum(int(self.header.ports.port[port].arena_bytes) for port in range(self.header.ports.count))

    def create_arenas(self) -> None:
        """Make and map the arenas of all ports. The supervisor calls it once."""
        for port in range(self.header.ports.count):
            size_bytes = int(self.header.ports.port[port].arena_bytes)
            self._map_arena(port, create_segment(self.name, f"arena{port}", size_bytes))

    def map_arena(self, port: int) -> None:
        """Map the arena of a port."""
        self._map_arena(port, open_segment(self.name, f"arena{port}"))

    def map_arenas(self) -> None:
        """Map the arenas of all ports. Write needs them."""
        for port in range(self.header.ports.count):
            self.map_arena(port)

    def _map_arena(self, port: int, area: mmap.mmap) -> None:
        self._arenas[port] = area
        self.struct.arenas[port] = ffi.from_buffer("char *", area, require_writable=True)
        self.struct.arena_bytes[port] = len(area)

    def free_arena(self, port: int) -> None:
        """Return the memory of a mapped arena to the system; it reads as zeros then. All requests of the port must have
        answers."""
        self._arenas[port].madvise(mmap.MADV_REMOVE)

    def set_event_fds(self, event_fds: dict[int, int]) -> None:
        """Set the eventfd of each role for the C core."""
        for role, descriptor in event_fds.items():
            self.struct.event_fds[role] = descriptor

    def role(self, role: int) -> Any:
        """The role's block (struct rmq_role)."""
        return self.header.roles[role]

    def confirm_offset(self) -> int:
        """First commit-log offset that no consumer may see yet."""
        return int(lib.rmq_confirm_offset(self.watermarks))

    def wake(self, role: int) -> None:
        """Ring the role's bell if the role sleeps."""
        lib.rmq_role_wake(self.struct, role)

    # -- tables (control writes) -----------------------------------------------------------------------

    def topic_find(self, name: str) -> int | None:
        """Id of the live topic `name`."""
        return self._id(lib.rmq_topic_find(self.struct, *_bytes(name)))

    def topic_add(self, name: str, config: int) -> int:
        """Add a topic with its config word (`topic_config_word`). The caller must add its queues, too."""
        return self._checked(lib.rmq_topic_add(self.struct, *_bytes(name), config), "topics", "topic_capacity")

    def topic_set(self, topic_id: int, config: int) -> None:
        """Change a topic by one store."""
        lib.rmq_topic_set(self.struct, topic_id, config)

    def queue_find(self, topic_id: int, queue_id: int) -> int | None:
        """Queue slot of (topic, queue)."""
        return self._id(lib.rmq_queue_find(self.struct, topic_id, queue_id))

    def queue_add(
        self, topic_id: int, queue_id: int, min_offset: int = 0, max_offset: int = 0, replay_from: int | None = None
    ) -> int:
        """Add a queue. Slots are never reused.

        Dispatch makes no unit of the queue for log records below `replay_from`. None = the log's end, because a new
        queue has no record yet. On a slave, records may arrive before their queue; records that are not dispatched yet
        count.
        """
        marks = self.watermarks
        end = int(marks.dispatched_offset if follows_master(marks) else marks.append_offset)
        start = end if replay_from is None else replay_from
        slot = lib.rmq_queue_add(self.struct, topic_id, queue_id, min_offset, max_offset, start)
        return self._checked(slot, "queues", "queue_capacity")

    def queue(self, queue_slot: int) -> Any:
        """The queue's entry (struct rmq_queue)."""
        return lib.rmq_queue_at(self.struct, queue_slot)

    def topic(self, topic_id: int) -> Any:
        """The topic's entry (struct rmq_topic)."""
        return lib.rmq_topic_at(self.struct, topic_id)

    def group(self, group_id: int) -> Any:
        """The group's entry (struct rmq_group)."""
        return lib.rmq_group_at(self.struct, group_id)

    def group_find(self, name: str) -> int | None:
        """Id of the group `name`, live or not. None if there is none."""
        return self._id(lib.rmq_group_find(self.struct, *_bytes(name)))

    def group_add(self, name: str, config: int) -> int:
        """Add a group with its flags (RMQ_GROUP_*)."""
        return self._checked(lib.rmq_group_add(self.struct, *_bytes(name), config), "groups", "group_capacity")

    def group_set(self, group_id: int, config: int) -> None:
        """Change a group's flags by one store."""
        lib.rmq_group_set(self.struct, group_id, config)

    def subscription_set(
        self, group_id: int, topic_id: int, kind: int, sub_version: int, tag_hashes: list[int]
    ) -> None:
        """Publish a group's subscription to a topic. More than TAGS_MAX tags must be stored as COLD."""
        if len(tag_hashes) > TAGS_MAX:
            raise ValueError(f"subscription of group {group_id}: {len(tag_hashes)} tags are over {TAGS_MAX}")
        code = lib.rmq_subscription_set(self.struct, group_id, topic_id, kind, sub_version, tag_hashes, len(tag_hashes))
        if code < 0:
            raise PlaneFullError(
                f"subscriptions: the table is full ({self.header.tables.subscription_capacity} entries)"
            )

    def subscription_replace(self, old: tuple[int, int], new: tuple[int, int]) -> None:
        """Give the entry of one (group id, topic id), which must be NONE, to another. Raises KeyError if `old` has no
        entry or `new` has one."""
        if lib.rmq_subscription_replace(self.struct, *old, *new) < 0:
            raise KeyError(old)

    def subscriptions_clear(self) -> None:
        """Withdraw all entries. Pulls are cold until a heartbeat publishes the subscriptions again."""
        lib.rmq_subscriptions_clear(self.struct)

    def filter_put(self, slot: int, expression: bytes, program: bytes) -> int:
        """Publish a compiled expression in the slot. Returns its version. Raises ValueError for a text that is too long
        and for a program that read workers would not run."""
        words = ffi.new("uint64_t[]", len(program) // 8 + 1)
        ffi.memmove(words, program, len(program))
        if lib.rmq_filter_verify(ffi.cast("struct rmq_filter_program *", words), len(program)) < 0:
            raise ValueError(f"the program of expression {expression[:64]!r} does not verify")
        version = int(lib.rmq_filter_put(self.struct, slot, expression, len(expression), program, len(program)))
        if not version:
            raise ValueError(
                f"filter slot {slot} cannot hold {len(expression)} bytes of expression and {len(program)} of program"
            )
        return version

    def filters_clear(self) -> None:
        """Withdraw all compiled expressions, and with them the subscriptions that name one."""
        lib.rmq_filters_clear(self.struct)

    def admission_rules(self) -> tuple[Rule, ...]:
        """The rules that read workers apply."""
        return published_rules(self.struct)

    def admission_publish(self, rules: tuple[Rule, ...]) -> None:
        """Replace the rules (`publish_rules`)."""
        publish_rules(self.struct, rules)

    def offset_get(self, group_id: int, queue_slot: int) -> int:
        """The committed offset. -1 = none."""
        return int(lib.rmq_offset_get(self.struct, group_id, queue_slot))

    def pull_stats_next(self, group_id: int, queue_slot: int) -> int:
        """The next offset of the group's latest pull of the queue since the start. -1 = none."""
        return int(lib.rmq_pull_stats_next_offset(self.struct, group_id, queue_slot))

    def pull_stats_open(self, group_id: int, queue_slot: int) -> int:
        """Open messages of the queue that the group has popped, a second old. -1 = it has pulled last, or none."""
        return int(lib.rmq_pull_stats_open(self.struct, group_id, queue_slot))

    def popped(self, group_id: int, queue_slot: int) -> int:
        """Messages of the queue that pops have given to the group since the start."""
        return int(lib.rmq_pull_stats_popped(self.struct, group_id, queue_slot))

    def offset_put(self, group_id: int, queue_slot: int, offset: int) -> None:
        """Store a committed offset. -1 erases it."""
        if lib.rmq_offset_put(self.struct, group_id, queue_slot, offset) < 0:
            raise PlaneFullError(f"consumer offsets: the table is full ({self.header.tables.offset_capacity} entries)")

    def offset_drain(self) -> int:
        """Apply offsets that pulls have committed. Returns the number of changes."""
        code = int(lib.rmq_offset_drain(self.struct))
        if code < 0:
            raise PlaneFullError(f"consumer offsets: the table is full ({self.header.tables.offset_capacity} entries)")
        return code

    def offset_keys(self, first: int, count_max: int | None = None) -> list[tuple[int, int]]:
        """(group id, queue slot) of the table's entries from number `first` on. The key of an entry never changes."""
        entries = ffi.cast("struct rmq_consumer_offset *", self.struct.base + self.header.tables.offsets_at)
        end = int(self.header.tables.offset_count)
        numbers = range(first, end if count_max is None else min(end, first + count_max))
        return [(entries[number].group_id, entries[number].queue_slot) for number in numbers]

    # -- control and ha ------------------------------------------------------------------------------------

    def ha_command_put(self, json: bytes) -> bool:
        """Put a command for ha (control alone). False if the ring is full. Raises ValueError if the command exceeds a
        slot."""
        code = lib.rmq_ha_command_put(self.struct, json, len(json))
        if code == -105:  # ENOBUFS
            return False
        if code < 0:
            raise ValueError(f"a command of {len(json)} bytes to ha: {os.strerror(-code)}")
        return True

    def ha_command_take(self) -> bytes | None:
        """Take control's oldest command (ha alone). None if there is none."""
        out = ffi.new("struct rmq_ha_command *")
        length = lib.rmq_ha_command_take(self.struct, out.json)
        if length < 0:
            raise ValueError(f"a command of control: {os.strerror(-length)}")
        return bytes(ffi.buffer(out.json, length)) if length else None

    def ha_event_put(self, json: bytes) -> bool:
        """Send an event to control as RMQ_INBOX_HA (ha alone). False if the inbox is full."""
        head = ffi.new("struct rmq_inbox_record *")
        head.type = lib.RMQ_INBOX_HA
        head.role = lib.RMQ_ROLE_HA
        head.role_generation = self.role(lib.RMQ_ROLE_HA).generation
        return int(lib.rmq_inbox_put(self.struct, lib.RMQ_CONTROL_ANSWERER, head, json, len(json), ffi.NULL)) == 0

    # -- sleeping ------------------------------------------------------------------------------------------

    def arm(self, role: int) -> None:
        """Announce that `role` is about to sleep. Then check the inputs once more, and call `wait` or `disarm`."""
        lib.rmq_role_arm(self.struct, role)

    def disarm(self, role: int) -> None:
        """Undo `arm`."""
        lib.rmq_role_disarm(self.struct, role)

    def wait(self, role: int, timeout_ms: int) -> bool:
        """Sleep until the bell rings or the time is over. True if the bell has rung."""
        return bool(lib.rmq_role_wait(self.struct, role, timeout_ms))

    # -- resting -------------------------------------------------------------------------------------------

    def activate(self, role: int) -> None:
        """Start the role's worker if it is dormant. Publish its work first."""
        lib.rmq_worker_activate(self.struct, role)

    def hold(self, role: int, duration_s: int) -> None:
        """Start the role's worker if it is dormant, and keep it for a time without work. Only control calls it."""
        self.role(role).needed_until_s = int(time.monotonic()) + duration_s
        self.activate(role)

    def is_held(self, role: int, now_ms: int) -> bool:
        """True if the role's worker has to stay without work. `now_ms`: of the monotonic clock."""
        return bool(now_ms < self.role(role).needed_until_s * 1000)

    def deactivate(self, role: int) -> None:
        """Announce that this worker has no work. If its last check then finds none, it may end with EXIT_RESTED."""
        lib.rmq_worker_deactivate(self.struct, role)

    def _id(self, value: int) -> int | None:
        return None if value == NONE else value

    def _checked(self, value: int, what: str, capacity_field: str) -> int:
        if value == NONE:
            raise PlaneFullError(f"{what}: the table is full ({getattr(self.header.tables, capacity_field)} entries)")
        return value


def plane_bytes(capacity: Capacity) -> int:
    """Size of a plane with these tables. It is sparse: unused pages take no memory."""
    return int(lib.rmq_plane_bytes(_sizes(capacity)))


def _sizes(capacity: Capacity) -> Any:
    sizes = ffi.new("struct rmq_plane_capacity *")
    for name in capacity.__struct_fields__:
        if name not in ("ports", "answerers"):
            setattr(sizes, name, getattr(capacity, name))
    fill_port_plans(sizes, capacity.ports)
    fill_answerer_plans(sizes, capacity.answerers)
    return sizes


def topic_config_word(perm: int, read_queues: int, write_queues: int, flags: int) -> int:
    """The one-word form of a topic's settings (struct rmq_topic.config)."""
    return perm & 0xFF | (read_queues & 0xFFFF) << 8 | (write_queues & 0xFFFF) << 24 | flags << 40


def _bytes(name: str) -> tuple[bytes, int]:
    encoded = name.encode()
    return encoded, len(encoded)
