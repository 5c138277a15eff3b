package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueSpan;
import java.util.Map;

/**
 * Splits a record of a batch queue into its messages.
 *
 * <p>Each message is size, magic, CRC, flag, body length, body, properties. The first has the queue offset of
 * INNER_BASE, or of the record.
 */
final class InnerBatch {
    private static final int HEAD_BYTES = 20;
    private static final int BODY_LENGTH_AT = 16;

    private InnerBatch() {}

    /** Adds the messages that the span wants. Raises {@link BrokenRecordException} with the reason. */
    static void addRows(RowTable rows, long record, int queueIndex, RecordDecoder decoded) {
        long at = decoded.body;
        long end = at + decoded.bodyLength;
        if (decoded.isCompressed()) {
            byte[] plain = Bodies.decompress(decoded);
            at = rows.keep(plain);
            end = at + plain.length;
        }
        QueueSpan span = rows.queues.spans[queueIndex];
        long offset = baseOffset(decoded);
        while (at < end) {
            long left = end - at;
            int size = left < HEAD_BYTES + 2 ? 0 : Memory.int32(at);
            int length = size < HEAD_BYTES + 2 || size > left ? -1 : Memory.int32(at + BODY_LENGTH_AT);
            if (length < 0 || length > size - HEAD_BYTES - 2) {
                throw new BrokenRecordException("lengths inside the inner batch do not add up");
            }
            if (offset >= span.begin() && offset < span.end()) {
                rows.addInner(record, queueIndex, offset, at + HEAD_BYTES, length, at + size);
            }
            offset++;
            at += size;
        }
    }

    private static long baseOffset(RecordDecoder decoded) {
        Map<String, String> properties = PropertyBytes.all(decoded.properties, decoded.propertiesLength);
        String base = properties.get("INNER_BASE");
        try {
            return base == null ? decoded.queueOffset : Long.parseLong(base);
        } catch (NumberFormatException failed) {
            throw new BrokenRecordException("INNER_BASE (" + base.length() + " characters) is not a number");
        }
    }
}
