package io.ringmq.spark.read;

import java.util.zip.CRC32;

/**
 * Decodes one record of the log in place.
 *
 * <p>The layout is that of RocketMQ's {@code MessageExtEncoder}: fixed head, two hosts of 8 or 20 bytes, body, topic,
 * properties. The decoder checks each length against the remaining bytes before it reads further. So damaged bytes give
 * a reason, never a fault.
 */
final class RecordDecoder {
    /** Result for the blank at the end of a file. */
    static final int BLANK = 0;

    static final int SHORT = -1;
    static final int BAD_MAGIC = -2;
    static final int BAD_LENGTH = -3;
    static final int BAD_PLACE = -4;
    static final int BAD_CRC = -5;
    static final int STRANGER = -6;

    static final int SYS_INNER_BATCH = 0x80;
    private static final int SYS_COMPRESSED = 0x1;
    private static final int SYS_TRANSACTION_MASK = 0xC;
    private static final int SYS_PREPARED = 0x4;
    private static final int SYS_ROLLBACK = 0xC;
    private static final int SYS_BORN_HOST_V6 = 0x10;
    private static final int SYS_STORE_HOST_V6 = 0x20;

    private static final int MAGIC_V1 = 0xDAA320A7;
    private static final int MAGIC_V2 = 0xDAA320AB; // with a topic length of two bytes
    private static final int MAGIC_BLANK = 0xCBD43194;
    private static final int BLANK_BYTES = 8;
    private static final int FIXED_BYTES = 91;
    private static final int V6_MORE_BYTES = 12;
    private static final int QUEUE_ID_AT = 12;
    private static final int QUEUE_OFFSET_AT = 20;
    private static final int PLACE_AT = 28;
    private static final int SYS_FLAG_AT = 36;
    private static final int BORN_TIME_AT = 40;
    private static final int STORE_TIME_AT = 56;
    private static final int STORE_HOST_AT = 64;
    private static final int BODY_LENGTH_AT = 84;

    int queueId;
    long queueOffset;
    int sysFlag;
    long body;
    int bodyLength;
    long topic;
    int topicLength;
    long properties;
    int propertiesLength;

    private final boolean verifyCrc;

    RecordDecoder(boolean verifyCrc) {
        this.verifyCrc = verifyCrc;
    }

    /**
     * Decodes the record at an address.
     *
     * @param left readable bytes from there
     * @param logOffset log offset that the record must contain as its own
     * @return size of the record, {@link #BLANK}, or a negative reason
     */
    int decode(long record, long left, long logOffset) {
        if (left < BLANK_BYTES) {
            return SHORT;
        }
        int size = Memory.int32(record);
        int magic = Memory.int32(record + 4);
        if (magic == MAGIC_BLANK) {
            return BLANK;
        }
        if (magic != MAGIC_V1 && magic != MAGIC_V2) {
            return BAD_MAGIC;
        }
        if (size < FIXED_BYTES) {
            return BAD_LENGTH;
        }
        if (size > left) {
            return SHORT;
        }
        queueId = Memory.int32(record + QUEUE_ID_AT);
        queueOffset = Memory.int64(record + QUEUE_OFFSET_AT);
        sysFlag = Memory.int32(record + SYS_FLAG_AT);
        if (!decodeRest(record, size, magic)) {
            return BAD_LENGTH;
        }
        return Memory.int64(record + PLACE_AT) == logOffset ? size : BAD_PLACE;
    }

    private boolean decodeRest(long record, int size, int magic) {
        long end = record + size;
        int hosts = ((sysFlag & SYS_BORN_HOST_V6) != 0 ? V6_MORE_BYTES : 0)
                + ((sysFlag & SYS_STORE_HOST_V6) != 0 ? V6_MORE_BYTES : 0);
        if (size < FIXED_BYTES + hosts) {
            return false;
        }
        long at = record + BODY_LENGTH_AT + hosts;
        bodyLength = Memory.int32(at);
        body = at + 4;
        int topicWidth = magic == MAGIC_V2 ? 2 : 1;
        if (bodyLength < 0 || bodyLength > end - body - topicWidth - 2) {
            return false;
        }
        at = body + bodyLength;
        topicLength = topicWidth == 1 ? Memory.uint8(at) : Memory.uint16(at);
        topic = at + topicWidth;
        if (topicLength > (topicWidth == 1 ? Byte.MAX_VALUE : Short.MAX_VALUE) || topicLength > end - topic - 2) {
            return false;
        }
        at = topic + topicLength;
        propertiesLength = Memory.uint16(at);
        properties = at + 2;
        return propertiesLength <= Short.MAX_VALUE && properties + propertiesLength == end;
    }

    /** Returns true for a compressed body. */
    boolean isCompressed() {
        return (sysFlag & SYS_COMPRESSED) != 0;
    }

    /** Returns true for a half message or a rolled-back one. */
    boolean isHalfOrRolledBack() {
        int transaction = sysFlag & SYS_TRANSACTION_MASK;
        return transaction == SYS_PREPARED || transaction == SYS_ROLLBACK;
    }

    /** Returns true if the CRC of the body is right, or is not to be checked. */
    boolean isCrcRight(long record) {
        if (!verifyCrc || bodyLength == 0) {
            return true;
        }
        CRC32 crc = new CRC32();
        crc.update(Memory.bytes(body, bodyLength));
        return (crc.getValue() & 0x7FFFFFFFL) == (Memory.int32(record + 8) & 0xFFFFFFFFL);
    }

    /** Returns the size field of the record. */
    static int size(long record) {
        return Memory.int32(record);
    }

    static int sysFlag(long record) {
        return Memory.int32(record + SYS_FLAG_AT);
    }

    static long logOffset(long record) {
        return Memory.int64(record + PLACE_AT);
    }

    static long bornTimeMs(long record) {
        return Memory.int64(record + BORN_TIME_AT);
    }

    static long storeTimeMs(long record) {
        return Memory.int64(record + STORE_TIME_AT + bornHostMore(record));
    }

    /** Returns the offset message id, store host and log offset, for a message without a unique key. */
    static byte[] offsetMessageId(long record) {
        int hostBytes = 8 + ((sysFlag(record) & SYS_STORE_HOST_V6) != 0 ? V6_MORE_BYTES : 0);
        byte[] id = new byte[hostBytes + 8];
        long host = record + STORE_HOST_AT + bornHostMore(record);
        System.arraycopy(Memory.bytes(host, hostBytes), 0, id, 0, hostBytes);
        System.arraycopy(Memory.bytes(record + PLACE_AT, 8), 0, id, hostBytes, 8);
        return id;
    }

    private static int bornHostMore(long record) {
        return (sysFlag(record) & SYS_BORN_HOST_V6) != 0 ? V6_MORE_BYTES : 0;
    }

    /** Returns the text of a negative result. */
    static String reason(int result) {
        switch (result) {
            case SHORT:
                return "the record's size exceeds the remaining bytes of the file";
            case BAD_MAGIC:
                return "neither a record nor a blank: ringmq-jvm knows the formats DAA320A7 and DAA320AB";
            case BAD_PLACE:
                return "the record contains another log offset than its own";
            case STRANGER:
                return "the record has another queue or queue offset than its unit";
            case BAD_CRC:
                return "the body's CRC is wrong";
            default:
                return "lengths inside the record do not add up";
        }
    }
}
