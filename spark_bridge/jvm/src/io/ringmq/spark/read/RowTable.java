package io.ringmq.spark.read;

import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/**
 * The rows of one batch, as addresses of records, bodies and property strings in the mapped log.
 *
 * <p>Vectors read the values when Spark asks for them. Decompressed bodies are retained until the next batch, and rows
 * of inner batches point into them.
 */
final class RowTable {
    private static final int UNPACKED_BYTES_MAX = 4 << 20;

    int count;
    long[] record;
    int[] queue;
    long[] offset;
    long[] body;
    int[] bodyLength;
    byte[][] unpacked; // null: the body is stored uncompressed
    long[] properties;
    int[] propertiesLength;
    final QueueTable queues;

    private long[] scratch = new long[0];
    private long unpackedBytes;

    RowTable(QueueTable queues, int capacity) {
        this.queues = queues;
        record = new long[capacity];
        queue = new int[capacity];
        offset = new long[capacity];
        body = new long[capacity];
        bodyLength = new int[capacity];
        unpacked = new byte[capacity][];
        properties = new long[capacity];
        propertiesLength = new int[capacity];
    }

    /** Begins a batch. */
    void clear() {
        Arrays.fill(unpacked, 0, count, null);
        count = 0;
        unpackedBytes = 0;
        forgetKept(0);
    }

    /** Returns true if the retained bodies are large enough to end the batch. */
    boolean isHeavy() {
        return count > 0 && unpackedBytes >= UNPACKED_BYTES_MAX;
    }

    /**
     * Adds the record as one row.
     *
     * @param plain the decompressed body, null for a body that is stored uncompressed or not wanted
     */
    void add(long address, int queueIndex, RecordDecoder decoded, byte[] plain) {
        int row = next();
        record[row] = address;
        queue[row] = queueIndex;
        offset[row] = decoded.queueOffset;
        body[row] = decoded.body;
        bodyLength[row] = decoded.bodyLength;
        unpacked[row] = plain;
        unpackedBytes += plain == null ? 0 : plain.length;
        properties[row] = decoded.properties;
        propertiesLength[row] = decoded.propertiesLength;
    }

    /** Adds one message of an inner batch. */
    void addInner(long address, int queueIndex, long queueOffset, long bodyAt, int length, long propertiesEnd) {
        int row = next();
        record[row] = address;
        queue[row] = queueIndex;
        offset[row] = queueOffset;
        body[row] = bodyAt;
        bodyLength[row] = length;
        unpacked[row] = null;
        properties[row] = bodyAt + length + 2;
        propertiesLength[row] = (int) (propertiesEnd - properties[row]);
    }

    /** Copies bytes to native memory, valid until {@link #clear}. */
    long keep(byte[] bytes) {
        long address = Platform.allocateMemory(Math.max(1, bytes.length));
        Platform.copyMemory(bytes, Platform.BYTE_ARRAY_OFFSET, null, address, bytes.length);
        scratch = Arrays.copyOf(scratch, scratch.length + 1);
        scratch[scratch.length - 1] = address;
        unpackedBytes += bytes.length;
        return address;
    }

    /** Returns the number of retained byte strings. */
    int keptCount() {
        return scratch.length;
    }

    /** Releases the byte strings behind the first {@code kept}. No row points to them. */
    void forgetKept(int kept) {
        for (int i = kept; i < scratch.length; i++) {
            Platform.freeMemory(scratch[i]);
        }
        scratch = scratch.length == kept ? scratch : Arrays.copyOf(scratch, kept);
    }

    private int next() {
        if (count == record.length) {
            grow(2 * count);
        }
        return count++;
    }

    private void grow(int capacity) {
        record = Arrays.copyOf(record, capacity);
        queue = Arrays.copyOf(queue, capacity);
        offset = Arrays.copyOf(offset, capacity);
        body = Arrays.copyOf(body, capacity);
        bodyLength = Arrays.copyOf(bodyLength, capacity);
        unpacked = Arrays.copyOf(unpacked, capacity);
        properties = Arrays.copyOf(properties, capacity);
        propertiesLength = Arrays.copyOf(propertiesLength, capacity);
    }
}
