package io.ringmq.spark.read;

import java.util.HexFormat;
import org.apache.spark.unsafe.types.UTF8String;

/** Columns of bytes and text: body, topic, and properties with a column of their own. */
final class TextVectors {
    private static final HexFormat HEX = HexFormat.of().withUpperCase();

    private TextVectors() {}

    static final class Value extends RowVector {
        Value(RowTable rows) {
            super(Column.VALUE.type(), rows);
        }

        @Override
        public byte[] getBinary(int row) {
            byte[] plain = rows.unpacked[row];
            return plain != null ? plain : Memory.bytes(rows.body[row], rows.bodyLength[row]);
        }
    }

    static final class Topic extends RowVector {
        Topic(RowTable rows) {
            super(Column.TOPIC.type(), rows);
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return rows.queues.topics[rows.queue[row]];
        }
    }

    /** A property, null if absent. Spark asks for null first, then for the value. */
    abstract static class Property extends RowVector {
        private final byte[] name;
        private final PropertyBytes properties = new PropertyBytes();
        private int lookedUp = -1;

        Property(Column column, byte[] name, RowTable rows) {
            super(column.type(), rows);
            this.name = name;
        }

        @Override
        void prepare() {
            lookedUp = -1;
        }

        /** Returns the position of the property, null if absent. */
        final PropertyBytes find(int row) {
            if (row != lookedUp) {
                properties.find(name, rows.properties[row], rows.propertiesLength[row]);
                lookedUp = row;
            }
            return properties.valueLength > 0 ? properties : null;
        }

        @Override
        public boolean hasNull() {
            return true;
        }

        @Override
        public int numNulls() {
            int nulls = 0;
            for (int row = 0; row < rows.count; row++) {
                nulls += isNullAt(row) ? 1 : 0;
            }
            return nulls;
        }

        @Override
        public boolean isNullAt(int row) {
            return find(row) == null;
        }
    }

    static final class Key extends Property {
        Key(RowTable rows) {
            super(Column.KEY, PropertyBytes.KEYS, rows);
        }

        @Override
        public byte[] getBinary(int row) {
            PropertyBytes found = find(row);
            return found == null ? null : Memory.bytes(found.value, found.valueLength);
        }
    }

    static final class Tags extends Property {
        Tags(RowTable rows) {
            super(Column.TAGS, PropertyBytes.TAGS, rows);
        }

        @Override
        public UTF8String getUTF8String(int row) {
            PropertyBytes found = find(row);
            return found == null ? null : Memory.text(found.value, found.valueLength);
        }
    }

    /** UNIQ_KEY, else the offset message id. */
    static final class MessageId extends Property {
        MessageId(RowTable rows) {
            super(Column.MSG_ID, PropertyBytes.UNIQ_KEY, rows);
        }

        @Override
        public boolean hasNull() {
            return false;
        }

        @Override
        public boolean isNullAt(int row) {
            return false;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            PropertyBytes found = find(row);
            return found == null
                    ? UTF8String.fromString(HEX.formatHex(RecordDecoder.offsetMessageId(rows.record[row])))
                    : Memory.text(found.value, found.valueLength);
        }
    }
}
