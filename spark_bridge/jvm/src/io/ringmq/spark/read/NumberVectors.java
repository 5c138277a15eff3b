package io.ringmq.spark.read;

/**
 * Columns of numbers, one class each.
 *
 * <p>Generated code of Spark has one call site per column. With a class per column the JIT compiles each call into the
 * load itself.
 */
final class NumberVectors {
    private static final long MICROS_PER_MS = 1000;

    private NumberVectors() {}

    static final class Partition extends RowVector {
        Partition(RowTable rows) {
            super(Column.PARTITION.type(), rows);
        }

        @Override
        public int getInt(int row) {
            return rows.queues.spans[rows.queue[row]].queueId();
        }
    }

    static final class Offset extends RowVector {
        Offset(RowTable rows) {
            super(Column.OFFSET.type(), rows);
        }

        @Override
        public long getLong(int row) {
            return rows.offset[row];
        }
    }

    static final class Timestamp extends RowVector {
        Timestamp(RowTable rows) {
            super(Column.TIMESTAMP.type(), rows);
        }

        @Override
        public long getLong(int row) {
            return RecordDecoder.storeTimeMs(rows.record[row]) * MICROS_PER_MS;
        }
    }

    static final class BornTimestamp extends RowVector {
        BornTimestamp(RowTable rows) {
            super(Column.BORN_TIMESTAMP.type(), rows);
        }

        @Override
        public long getLong(int row) {
            return RecordDecoder.bornTimeMs(rows.record[row]) * MICROS_PER_MS;
        }
    }

    static final class SysFlag extends RowVector {
        SysFlag(RowTable rows) {
            super(Column.SYS_FLAG.type(), rows);
        }

        @Override
        public int getInt(int row) {
            return RecordDecoder.sysFlag(rows.record[row]);
        }
    }

    static final class LogOffset extends RowVector {
        LogOffset(RowTable rows) {
            super(Column.COMMIT_LOG_OFFSET.type(), rows);
        }

        @Override
        public long getLong(int row) {
            return RecordDecoder.logOffset(rows.record[row]);
        }
    }
}
