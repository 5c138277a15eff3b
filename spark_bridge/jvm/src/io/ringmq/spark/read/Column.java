package io.ringmq.spark.read;

import java.util.Arrays;
import java.util.stream.Collectors;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The columns, in the order and with the types of {@code ringmq.spark_bridge.schema}, which documents them. Tests
 * compare both.
 */
public enum Column {
    KEY("key", DataTypes.BinaryType),
    VALUE("value", DataTypes.BinaryType),
    TOPIC("topic", DataTypes.StringType),
    PARTITION("partition", DataTypes.IntegerType),
    OFFSET("offset", DataTypes.LongType),
    TIMESTAMP("timestamp", DataTypes.TimestampType),
    TIMESTAMP_TYPE("timestampType", DataTypes.IntegerType),
    HEADERS("headers", headersType()),
    BROKER("broker", DataTypes.StringType),
    TAGS("tags", DataTypes.StringType),
    MSG_ID("msg_id", DataTypes.StringType),
    BORN_TIMESTAMP("born_timestamp", DataTypes.TimestampType),
    SYS_FLAG("sys_flag", DataTypes.IntegerType),
    COMMIT_LOG_OFFSET("commit_log_offset", DataTypes.LongType),
    PROPERTIES("properties", DataTypes.createMapType(DataTypes.StringType, DataTypes.StringType));

    private final String label;
    private final DataType type;

    Column(String label, DataType type) {
        this.label = label;
        this.type = type;
    }

    /** Returns the name in Spark. */
    public String label() {
        return label;
    }

    /** Returns the type in Spark. */
    public DataType type() {
        return type;
    }

    /** Returns the column as a field. All fields are nullable, as in the Python source. */
    public StructField field() {
        return DataTypes.createStructField(label, type, true);
    }

    /** Returns true if every row has a value. */
    public boolean isNeverNull() {
        return this != KEY && this != HEADERS && this != TAGS;
    }

    /** Returns true if the value follows from queue and queue offset alone, without the record. */
    public boolean isOfQueue() {
        return this == TOPIC || this == PARTITION || this == OFFSET || this == TIMESTAMP_TYPE || this == BROKER;
    }

    /** Returns the column with this name. Raises IllegalArgumentException with the known names. */
    public static Column named(String name) {
        for (Column column : values()) {
            if (column.label.equals(name)) {
                return column;
            }
        }
        String known = Arrays.stream(values()).map(Column::label).collect(Collectors.joining(", "));
        throw new IllegalArgumentException("column '" + name + "' is not one of " + known);
    }

    private static DataType headersType() {
        return DataTypes.createArrayType(new StructType()
                .add("key", DataTypes.StringType)
                .add("value", DataTypes.BinaryType));
    }
}
