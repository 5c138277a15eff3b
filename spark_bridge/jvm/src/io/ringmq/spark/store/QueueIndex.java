package io.ringmq.spark.store;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * The index of one queue.
 *
 * <p>{@code consumequeue/<topic>/<queue id>} has 20-byte units of one message. {@code batchconsumequeue/...} has
 * 46-byte units of one record, which may have several messages. Units are addressed by number, which in a plain queue
 * is the queue offset. No file stores the ends of a queue. The first unit is the first one whose record the log still
 * has. The last unit is the last valid one whose record is readable.
 */
public final class QueueIndex implements Closeable {
    private static final int PLAIN_BYTES = 20;
    private static final int BATCH_BYTES = 46;
    private static final int CHUNK_UNITS = 4096;
    private static final int FILLERS_AT_ONCE = 256;

    private final NumberedFiles files;
    private final boolean isBatch;
    private final int unitBytes;
    private final ByteBuffer one;
    private ByteBuffer chunk;
    private long chunkFirst;
    private int chunkUnits;

    QueueIndex(NumberedFiles files, boolean isBatch) {
        this.files = files;
        this.isBatch = isBatch;
        this.unitBytes = isBatch ? BATCH_BYTES : PLAIN_BYTES;
        this.one = ByteBuffer.allocate(unitBytes);
    }

    /** A test of a unit; null stands for an unwritten unit. */
    @FunctionalInterface
    public interface Question {
        /** Returns true if the unit lies behind the searched position. */
        boolean isBehind(Unit unit) throws IOException;
    }

    /** Returns the unit with this number, null if it is unwritten or its file is gone. */
    public Unit unit(long number) throws IOException {
        if (number < 0) {
            return null;
        }
        one.clear();
        files.read(number * unitBytes, one);
        return one.remaining() < unitBytes ? null : decode(one, 0, number);
    }

    /** Returns the unit as {@link #unit} does, with a cache for sequential readers. */
    public Unit nextUnit(long number) throws IOException {
        if (number < chunkFirst || number >= chunkFirst + chunkUnits) {
            if (chunk == null) {
                chunk = ByteBuffer.allocate(CHUNK_UNITS * unitBytes);
            }
            chunk.clear();
            files.read(number * unitBytes, chunk);
            chunkFirst = number;
            chunkUnits = chunk.remaining() / unitBytes;
            if (chunkUnits == 0) {
                return null;
            }
        }
        return decode(chunk, (int) (number - chunkFirst) * unitBytes, number);
    }

    /** Returns true if {@link #nextUnit} found bytes there, of a unit or not. */
    public boolean hadBytes(long number) {
        return number >= chunkFirst && number < chunkFirst + chunkUnits;
    }

    /** Returns the first number of the next file, MAX_VALUE without one. */
    public long nextFile(long number) {
        for (long start : files.starts) {
            if (start > number * unitBytes) {
                return start / unitBytes;
            }
        }
        return Long.MAX_VALUE;
    }

    private Unit decode(ByteBuffer bytes, int at, long number) {
        long logOffset = bytes.getLong(at);
        int size = bytes.getInt(at + 8);
        if (logOffset < 0 || size <= 0) {
            return null;
        }
        if (!isBatch) {
            return new Unit(number, 1, logOffset, size);
        }
        long base = bytes.getLong(at + 28);
        int count = bytes.getShort(at + 36);
        return count <= 0 ? null : new Unit(base, count, logOffset, size);
    }

    /** Returns the number behind the last unit whose record ends at or below the bound. */
    public long endNumber(long bound) throws IOException {
        long perFile = files.fileBytes / unitBytes;
        for (int i = files.starts.size() - 1; i >= 0; i--) {
            long first = files.starts.get(i) / unitBytes;
            long end = firstNumber(first, first + perFile, unit -> unit == null || unit.logEnd() > bound);
            if (end > first || i == 0) {
                return end;
            }
        }
        return 0;
    }

    /** Returns the number of the first unit below {@code end} whose record the log still has. */
    public long minNumber(long logMinOffset, long end) throws IOException {
        long first = Math.min(files.minOffset() / unitBytes, end);
        return firstNumber(first, end, unit -> unit != null && unit.logOffset() >= logMinOffset);
    }

    /**
     * Returns the first number in [low, high) whose unit lies behind, else {@code high}, by binary search.
     *
     * <p>A filler has no log offset, so the unit behind it decides.
     */
    public long firstNumber(long low, long high, Question question) throws IOException {
        long from = low;
        long to = high;
        long found = high;
        while (from < to) {
            long middle = (from + to) >>> 1;
            long number = pastFillers(middle, high);
            if (number < high && !question.isBehind(unit(number))) {
                from = number + 1;
            } else {
                found = Math.min(found, number);
                to = middle;
            }
        }
        return found;
    }

    /** Returns the first unit in [low, high) with a record, else null. */
    public Unit firstUnit(long low, long high) throws IOException {
        long number = pastFillers(low, high);
        return number < high ? unit(number) : null;
    }

    /** Returns the last unit in [low, high) with a record, else null. */
    public Unit lastUnit(long low, long high) throws IOException {
        for (long number = high - 1; number >= low; number--) {
            Unit unit = unit(number);
            if (unit == null || !unit.isFiller()) {
                return unit;
            }
        }
        return null;
    }

    /** Returns the first queue offset in [offset, high) with a record, else {@code high}. A batch queue has no gap. */
    public long nextRecord(long offset, long high) throws IOException {
        return isBatch ? Math.min(offset, high) : pastFillers(offset, high);
    }

    /** Returns the first queue offset in [offset, high) without a record, else {@code high}. */
    public long nextLeftOut(long offset, long high) throws IOException {
        ByteBuffer units = isBatch ? null : ByteBuffer.allocate(CHUNK_UNITS * unitBytes);
        long at = offset;
        while (!isBatch && at < high) {
            units.clear();
            files.read(at * unitBytes, units);
            int count = units.remaining() / unitBytes;
            if (count == 0) { // the file is gone
                at = nextFile(at);
            }
            for (int i = 0; i < count && at < high; i++, at++) {
                int place = i * unitBytes;
                if (units.getInt(place + 8) == Unit.FILLER_SIZE && units.getLong(place) == 0) {
                    return at;
                }
            }
        }
        return high;
    }

    /** Returns the number of queue offsets in [low, high) with a record. */
    public long countRecords(long low, long high) throws IOException {
        long count = 0;
        long at = nextRecord(low, high);
        while (at < high) {
            long end = nextLeftOut(at, high);
            count += end - at;
            at = nextRecord(end, high);
        }
        return count;
    }

    /** Returns the first number in [number, high) that has no filler, else {@code high}. */
    private long pastFillers(long number, long high) throws IOException {
        Unit first = number < high ? unit(number) : null;
        if (first == null || !first.isFiller()) {
            return number;
        }
        ByteBuffer units = ByteBuffer.allocate(FILLERS_AT_ONCE * unitBytes);
        long at = number + 1;
        while (at < high) {
            units.clear();
            files.read(at * unitBytes, units);
            int count = units.remaining() / unitBytes;
            if (count == 0) {
                return at;
            }
            for (int i = 0; i < count && at < high; i++, at++) {
                Unit unit = decode(units, i * unitBytes, at);
                if (unit == null || !unit.isFiller()) {
                    return at;
                }
            }
        }
        return high;
    }

    /** Returns the number of the unit in [low, high) with this queue offset, or with the first later one. */
    public long numberOf(long offset, long low, long high) throws IOException {
        if (!isBatch) {
            return Math.max(low, Math.min(offset, high));
        }
        return firstNumber(low, high, unit -> unit == null || unit.end() > offset);
    }

    @Override
    public void close() throws IOException {
        files.close();
    }
}
