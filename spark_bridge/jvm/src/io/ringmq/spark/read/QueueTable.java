package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueSpan;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Finds a wanted queue by topic bytes and queue id. A full scan looks up each record, so no string is made. */
final class QueueTable {
    private static final long MIX = 0x9E3779B97F4A7C15L;

    final QueueSpan[] spans;
    final UTF8String[] topics;
    private final byte[][] names;
    private final int[] slots; // index + 1 of a span, 0 is free
    private final int mask;

    QueueTable(List<QueueSpan> wanted) {
        spans = wanted.toArray(new QueueSpan[0]);
        topics = new UTF8String[spans.length];
        names = new byte[spans.length][];
        mask = Math.max(16, Integer.highestOneBit(Math.max(1, spans.length)) * 4) - 1;
        slots = new int[mask + 1];
        for (int i = 0; i < spans.length; i++) {
            names[i] = spans[i].topic().getBytes(StandardCharsets.UTF_8);
            topics[i] = UTF8String.fromBytes(names[i]);
            int slot = slot(hash(names[i], Platform.BYTE_ARRAY_OFFSET, names[i].length, spans[i].queueId()));
            while (slots[slot] != 0) {
                slot = slot + 1 & mask;
            }
            slots[slot] = i + 1;
        }
    }

    /** Returns the index of the span, -1 for an unwanted queue. */
    int find(long topic, int length, int queueId) {
        int slot = slot(hash(null, topic, length, queueId));
        while (slots[slot] != 0) {
            int index = slots[slot] - 1;
            if (spans[index].queueId() == queueId && isName(names[index], topic, length)) {
                return index;
            }
            slot = slot + 1 & mask;
        }
        return -1;
    }

    private int slot(long hash) {
        return (int) (hash >>> 40) & mask;
    }

    private static long hash(Object base, long at, int length, int queueId) {
        long hash = (long) queueId << 32 | length;
        int i = 0;
        for (; i + 8 <= length; i += 8) {
            hash = (hash ^ Platform.getLong(base, at + i)) * MIX;
            hash ^= hash >>> 29;
        }
        for (; i < length; i++) {
            hash = (hash ^ Platform.getByte(base, at + i)) * MIX;
        }
        return hash * MIX;
    }

    private static boolean isName(byte[] name, long topic, int length) {
        if (name.length != length) {
            return false;
        }
        int i = 0;
        for (; i + 8 <= length; i += 8) {
            if (Platform.getLong(null, topic + i) != Platform.getLong(name, Platform.BYTE_ARRAY_OFFSET + i)) {
                return false;
            }
        }
        for (; i < length; i++) {
            if (Platform.getByte(null, topic + i) != name[i]) {
                return false;
            }
        }
        return true;
    }
}
