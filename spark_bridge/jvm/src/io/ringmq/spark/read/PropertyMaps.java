package io.ringmq.spark.read;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;

/**
 * The columns {@code headers} and {@code properties}, copied for each batch: the log has no form of nested values that
 * Spark could read.
 */
final class PropertyMaps {
    /** System property names, as in {@code ringmq.client.system_properties}. */
    private static final Set<String> RESERVED = Set.of(
            "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP",
            "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
            "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES",
            "CONSUME_START_TIME", "INNER_NUM", "INNER_BASE", "DUP_INFO", "CHECK_IMMUNITY_TIME_IN_SECONDS",
            "TRAN_PREPARED_QUEUE_OFFSET", "__transactionId__", "TRANSACTION_CHECK_TIMES", "INSTANCE_ID",
            "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE",
            "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "__SHARDINGKEY", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT",
            "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
            "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS",
            "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP");

    private final boolean isHeaders;
    private final WritableColumnVector vector;

    PropertyMaps(Column column, int capacity) {
        isHeaders = column == Column.HEADERS;
        vector = new OnHeapColumnVector(capacity, column.type());
    }

    WritableColumnVector vector() {
        return vector;
    }

    /** Fills the vector from the rows of the table. */
    void fill(RowTable rows) {
        vector.reset();
        vector.reserve(rows.count);
        WritableColumnVector elements = vector.getChild(0);
        WritableColumnVector names = isHeaders ? elements.getChild(0) : elements;
        WritableColumnVector values = isHeaders ? elements.getChild(1) : vector.getChild(1);
        int next = 0;
        for (int row = 0; row < rows.count; row++) {
            int first = next;
            Map<String, String> properties = PropertyBytes.all(rows.properties[row], rows.propertiesLength[row]);
            for (Map.Entry<String, String> property : properties.entrySet()) {
                if (isHeaders && RESERVED.contains(property.getKey())) {
                    continue;
                }
                if (isHeaders) {
                    elements.appendStruct(false);
                }
                append(names, property.getKey());
                append(values, property.getValue());
                next++;
            }
            if (isHeaders && next == first) {
                vector.putNull(row);
            } else {
                vector.putArray(row, first, next - first);
            }
        }
    }

    private static void append(WritableColumnVector vector, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        vector.appendByteArray(bytes, 0, bytes.length);
    }
}
