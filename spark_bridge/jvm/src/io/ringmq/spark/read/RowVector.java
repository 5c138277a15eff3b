package io.ringmq.spark.read;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column that reads its values from the log when Spark asks for them. It returns copies, so no value outlives the
 * mapping.
 */
abstract class RowVector extends ColumnVector {
    final RowTable rows;

    RowVector(DataType type, RowTable rows) {
        super(type);
        this.rows = rows;
    }

    /** Begins a batch of the table. */
    void prepare() {}

    @Override
    public void close() {
        // the reader owns the table and its memory
    }

    @Override
    public boolean hasNull() {
        return false;
    }

    @Override
    public int numNulls() {
        return 0;
    }

    @Override
    public boolean isNullAt(int row) {
        return false;
    }

    @Override
    public boolean getBoolean(int row) {
        throw unsupported();
    }

    @Override
    public byte getByte(int row) {
        throw unsupported();
    }

    @Override
    public short getShort(int row) {
        throw unsupported();
    }

    @Override
    public int getInt(int row) {
        throw unsupported();
    }

    @Override
    public long getLong(int row) {
        throw unsupported();
    }

    @Override
    public float getFloat(int row) {
        throw unsupported();
    }

    @Override
    public double getDouble(int row) {
        throw unsupported();
    }

    @Override
    public ColumnarArray getArray(int row) {
        throw unsupported();
    }

    @Override
    public ColumnarMap getMap(int row) {
        throw unsupported();
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
        throw unsupported();
    }

    @Override
    public UTF8String getUTF8String(int row) {
        throw unsupported();
    }

    @Override
    public byte[] getBinary(int row) {
        throw unsupported();
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        throw unsupported();
    }

    private UnsupportedOperationException unsupported() {
        return new UnsupportedOperationException("no other type for a column of " + dataType().simpleString());
    }
}
