"""Names, sizes and byte offsets of the store's files. Bytes as in RocketMQ 5.3, big-endian.

RocketMQ's entries: `commitlog/`, `consumequeue/<topic>/<queueId>/`, `batchconsumequeue/<topic>/<queueId>/`, `index/`,
`config/`, `checkpoint`, `abort`, `lock`. RingMQ's own: `ringmq.boot`, `ringmq.failed` (see `markers`),
`ringmq.format` (see `store_format`), `ringmq.queues` and `ringmq.rebuild` (see `queue_ends`).
"""

import struct

from ringmq import native

COMMIT_LOG_FILE_BYTES = 1 << 30
CONSUME_QUEUE_UNIT = struct.Struct(">qiq")  # commit log offset, size, tags code
CONSUME_QUEUE_FILE_BYTES = 300_000 * CONSUME_QUEUE_UNIT.size
BATCH_UNIT = struct.Struct(">qiqqqhii")  # offset, size, tags code, store time, base offset, batch size, -1, 0
BATCH_FILE_BYTES = 300_000 * BATCH_UNIT.size
FILLER_SIZE = 0x7FFFFFFF
INDEX_SLOTS = 5_000_000
INDEX_ENTRIES = 20_000_000
CHECKPOINT_BYTES = 4096
END_OF_FILE_BLANK_BYTES = 8

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
INDEX = "index"
CONFIG = "config"
CHECKPOINT = "checkpoint"
DELAY_OFFSETS_FILE = "delayOffset.json"
TIMER_COUNTS_FILE = "timermetrics"
TIMER_WHEEL_FILE = "timerwheel"
TIMER_TOPICS_FILE = "ringmqTimerTopics.json"
DELAY_CHECKPOINT_FILE = "ringmqDelayOffset.json"
ABORT = "abort"
LOCK = "lock"
BOOT_MARKER = "ringmq.boot"
FAILED_MARKER = "ringmq.failed"
FORMAT_MARKER = "ringmq.format"
QUEUE_ENDS_FILE = "ringmq.queues"
REBUILD_MARKER = "ringmq.rebuild"

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
LMQ_PREFIX = "%LMQ%"
COMPACTION_LOG = "compaction/compactionLog"
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
INNER_BATCH = 0x80

# The C side asserts the same numbers at compile time: a mismatch here means another build of the extension.
_SIZES = {
    "struct rmq_record_in": 160,
    "struct rmq_record_view": 112,
    "struct rmq_cq_unit": 24,
    "struct rmq_cq_batch_unit": 40,
    "struct rmq_index": 16,
    "struct rmq_index_header": 40,
    "struct rmq_queue_row": 120,
    "struct rmq_log_recovery": 168,
}


def _check_core() -> None:
    for name, size in _SIZES.items():
        if native.ffi.sizeof(name) != size:
            raise ImportError(f"{name} has {native.ffi.sizeof(name)} bytes in the C core, {size} expected: rebuild it")
    if (CONSUME_QUEUE_UNIT.size, BATCH_UNIT.size) != (native.lib.RMQ_CQ_UNIT_BYTES, native.lib.RMQ_CQ_BATCH_UNIT_BYTES):
        raise ImportError("unit sizes of the C core differ from ringmq.store.layout: rebuild it")


if native.available():  # Spark tasks decode records on hosts without the C core
    _check_core()


def body_length_at(sys_flag: int) -> int:
    """Offset in a record of the length of its body. The body follows it. The two hosts before have 8 or 20 bytes."""
    return 84 + 12 * bool(sys_flag & BORN_HOST_V6) + 12 * bool(sys_flag & STORE_HOST_V6)


def file_name(offset: int) -> str:
    """Return the name of the file whose first byte has this offset: 20 decimal digits."""
    return f"{offset:020d}"
