package io.ringmq.spark.read;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** The wanted columns over one row table. All batches of a task share the vectors. */
final class BatchColumns {
    private static final int LOG_APPEND_TIME = 1;

    private final RowTable rows;
    private final ColumnarBatch batch;
    private final List<RowVector> readers = new ArrayList<>();
    private final List<PropertyMaps> maps = new ArrayList<>();

    BatchColumns(List<Column> columns, String broker, RowTable rows) {
        this.rows = rows;
        ColumnVector[] vectors = new ColumnVector[columns.size()];
        for (int i = 0; i < vectors.length; i++) {
            vectors[i] = vector(columns.get(i), broker);
        }
        batch = new ColumnarBatch(vectors);
    }

    /** Returns at most {@code limit} rows of the table as a batch of Spark, valid until the table changes. */
    ColumnarBatch batch(long limit) {
        readers.forEach(RowVector::prepare);
        maps.forEach(map -> map.fill(rows));
        batch.setNumRows((int) Math.min(rows.count, limit));
        return batch;
    }

    void close() {
        batch.close();
    }

    private ColumnVector vector(Column column, String broker) {
        switch (column) {
            case TIMESTAMP_TYPE:
                return timestampType();
            case BROKER:
                return text(broker);
            case HEADERS:
            case PROPERTIES:
                PropertyMaps map = new PropertyMaps(column, rows.record.length);
                maps.add(map);
                return map.vector();
            default:
                RowVector reader = reader(column);
                readers.add(reader);
                return reader;
        }
    }

    private RowVector reader(Column column) {
        switch (column) {
            case KEY:
                return new TextVectors.Key(rows);
            case VALUE:
                return new TextVectors.Value(rows);
            case TOPIC:
                return new TextVectors.Topic(rows);
            case TAGS:
                return new TextVectors.Tags(rows);
            case MSG_ID:
                return new TextVectors.MessageId(rows);
            case PARTITION:
                return new NumberVectors.Partition(rows);
            case OFFSET:
                return new NumberVectors.Offset(rows);
            case TIMESTAMP:
                return new NumberVectors.Timestamp(rows);
            case BORN_TIMESTAMP:
                return new NumberVectors.BornTimestamp(rows);
            case SYS_FLAG:
                return new NumberVectors.SysFlag(rows);
            case COMMIT_LOG_OFFSET:
                return new NumberVectors.LogOffset(rows);
            default:
                throw new IllegalArgumentException(column.label());
        }
    }

    static ColumnVector timestampType() {
        ConstantColumnVector vector = new ConstantColumnVector(1, Column.TIMESTAMP_TYPE.type());
        vector.setInt(LOG_APPEND_TIME);
        return vector;
    }

    static ColumnVector text(String value) {
        ConstantColumnVector vector = new ConstantColumnVector(1, Column.TOPIC.type());
        vector.setUtf8String(UTF8String.fromString(value));
        return vector;
    }
}
