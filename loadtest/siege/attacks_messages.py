"""Attacks with messages: the largest, the most, and those that grow when a reader decompresses them."""

import random
import struct
from collections.abc import Sequence

from ringmq.loadtest.siege.attack import QUEUES, Target
from ringmq.loadtest.siege.attacks_clients import closed_loop, prebuilt
from ringmq.loadtest.siege.attacks_wire import compressed
from ringmq.loadtest.siege.requests import send
from ringmq.loadtest.siege.swarm import Wave
from ringmq.remoting.codes import RequestCode

MESSAGE_MAX_BYTES = 4 << 20
PAUSE_S = 0.4  # 80 MB/s with 8 connections: the disk of a test machine keeps room
COMPRESSED_FLAG = 1
UNPACKED_BYTES = 1 << 30


def largest_messages(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send messages of 4 MiB on 8 connections."""
    sends = [send(bytes(MESSAGE_MAX_BYTES), queue_id=n) for n in range(QUEUES)]
    return closed_loop(target, prebuilt(sends), 8, pause_s=PAUSE_S)


def bombs(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send batches of 180,000 messages of one byte, and bodies that decompress to 1 GiB."""
    one = struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x\0\0"
    batch = send(one * (MESSAGE_MAX_BYTES // len(one)), code=RequestCode.SEND_BATCH_MESSAGE)
    packed = send(compressed(UNPACKED_BYTES), f=COMPRESSED_FLAG)
    return closed_loop(target, prebuilt([batch, packed]), 4, pause_s=PAUSE_S)


def small_messages(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send messages of one byte with ever new keys, as fast as 32 connections get their answers."""
    sends = [send(b"x", queue_id=n % QUEUES, properties=f"KEYS\x01k{n}\x02") * 4 for n in range(5000)]
    return closed_loop(target, prebuilt(sends), 32)
