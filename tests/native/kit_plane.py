"""A Plane over the kit of the role tests, for a republisher."""

from typing import Any

from plane_kit import Kit

from ringmq.native import lib

ROLE = 24


class KitPlane:
    """What a republisher uses of `ringmq.ipc.plane.Plane`. `arena_bytes` cuts the arena of its port."""

    def __init__(self, kit: Kit, arena_bytes: int) -> None:
        self.kit, self.struct, self.header, self.watermarks = kit, kit.plane, kit.header, kit.marks
        self._arena_bytes = arena_bytes

    def role(self, role: int) -> Any:
        return self.header.roles[role]

    def port_of(self, role: int) -> int:
        return int(lib.rmq_port_find(self.struct, role))

    def map_arena(self, port: int) -> None:
        self.struct.arena_bytes[port] = self._arena_bytes

    def queue(self, slot: int) -> Any:
        return lib.rmq_queue_at(self.struct, slot)
