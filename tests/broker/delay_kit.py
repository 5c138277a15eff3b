"""What tests of delay levels share: short levels, the messages that wait, and the rules for their copies."""

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message import MessageExt, decode_messages
from tests.raw_client import RawClient

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = [1, 2, *[3] * 16]
SETTINGS = {
    "mappedFileSizeCommitLog": 4 << 20,
    "messageDelayLevel": " ".join(f"{seconds}s" for seconds in LEVELS),
}


def check(waiting: list[MessageExt], delivered: list[MessageExt], level: int) -> None:
    """Each message once, in order, unchanged, and not before its time."""
    assert [message.body for message in delivered] == [message.body for message in waiting]
    for source, copy in zip(waiting, delivered, strict=True):
        assert copy.store_timestamp_ms >= source.store_timestamp_ms + LEVELS[level - 1] * 1000
        assert copy.properties == source.properties
        assert (copy.born_timestamp_ms, copy.properties["DELAY"]) == (source.born_timestamp_ms, str(level))


def waiting_of(client: RawClient, level: int) -> list[MessageExt]:
    """All messages that the queue of a level has held."""
    found: list[MessageExt] = []
    while (answer := client.pull(SCHEDULE, queue_id=level - 1, offset=len(found))).code == ResponseCode.SUCCESS:
        found += decode_messages(answer.body)
    return found
