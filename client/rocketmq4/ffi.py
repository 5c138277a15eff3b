"""The one name of the old binding that programs import."""

from enum import IntEnum


class MessageModel(IntEnum):
    """Who of a group gets a message: every member, or one."""

    BROADCASTING = 0
    CLUSTERING = 1
