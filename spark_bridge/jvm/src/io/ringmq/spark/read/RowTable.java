package io.ringmq.spark.read;

import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/**
 * The rows of one batch, as places: where in the mapped log each record, body and property string lies. Values are read
 * from there when Spark asks for them. Rows of inner batches whose bodies had to be decompressed point into memory that
 * lives until the next batch.
 */
final class RowTable {
    int count;
    long[] record;
    int[] queue;
    long[] offset;
    long[] body;
    int[] bodyLength;
    boolean[] isCompressed;
    long[] properties;
    int[] propertiesLength;
    final QueueTable queues;

    private long[] scratch = new long[0];

    RowTable(QueueTable queues, int capacity) {
        this.queues = queues;
        record = new long[capacity];
        queue = new int[capacity];
        offset = new long[capacity];
        body = new long[capacity];
        bodyLength = new int[capacity];
        isCompressed = new boolean[capacity];
        properties = new long[capacity];
        propertiesLength = new int[capacity];
    }

    /** Begins a new batch. */
    void clear() {
        count = 0;
        for (long address : scratch) {
            Platform.freeMemory(address);
        }
        scratch = scratch.length == 0 ? scratch : new long[0];
    }

    /** Adds the decoded record as one row. */
    void add(long address, int queueIndex, RecordDecoder decoded) {
        int row = next();
        record[row] = address;
        queue[row] = queueIndex;
        offset[row] = decoded.queueOffset;
        body[row] = decoded.body;
        bodyLength[row] = decoded.bodyLength;
        isCompressed[row] = (decoded.sysFlag & RecordDecoder.SYS_COMPRESSED) != 0;
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
        isCompressed[row] = false;
        properties[row] = bodyAt + length + 2;
        propertiesLength[row] = (int) (propertiesEnd - properties[row]);
    }

    /** Copies bytes to where addresses reach them until {@link #clear}. */
    long keep(byte[] bytes) {
        long address = Platform.allocateMemory(Math.max(1, bytes.length));
        Platform.copyMemory(bytes, Platform.BYTE_ARRAY_OFFSET, null, address, bytes.length);
        scratch = Arrays.copyOf(scratch, scratch.length + 1);
        scratch[scratch.length - 1] = address;
        return address;
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
        isCompressed = Arrays.copyOf(isCompressed, capacity);
        properties = Arrays.copyOf(properties, capacity);
        propertiesLength = Arrays.copyOf(propertiesLength, capacity);
    }
}
