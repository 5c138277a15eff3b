package io.ringmq.spark.read;

import io.ringmq.spark.store.MappedFile;
import io.ringmq.spark.store.StoreFolder;
import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.List;

/** The log files that a task has in use: the one it is in, and those that rows of the present batch still point into. */
final class OpenLog {
    private final StoreFolder store;
    private final boolean failOnDataLoss;
    private final List<MappedFile> earlier = new ArrayList<>();
    private MappedFile current;
    private long start;
    private long end;

    OpenLog(StoreFolder store, boolean failOnDataLoss) {
        this.store = store;
        this.failOnDataLoss = failOnDataLoss;
    }

    /** Goes to the file with this offset; false when it is gone and may be. Raises {@link DataLossException}. */
    boolean open(long logOffset) throws IOException {
        if (current != null && logOffset >= start && logOffset < end) {
            return true;
        }
        try {
            MappedFile next = MappedFile.acquire(store.logFile(logOffset));
            if (!store.isSame()) {
                next.release(true);
                throw new DataLossException(
                        store.logFile(logOffset) + ": the store was removed and made again since the read was planned",
                        null);
            }
            if (current != null) {
                earlier.add(current);
            }
            current = next;
        } catch (NoSuchFileException gone) {
            if (failOnDataLoss) {
                throw new DataLossException(
                        store.logFile(logOffset) + ", commit log offset " + logOffset
                                + ": gone since the read was planned (retention, or the store was removed)",
                        gone);
            }
            return false;
        }
        start = store.logFileStart(logOffset);
        end = start + current.size();
        return true;
    }

    /** Where the log's offset 0 would lie in memory, if the present file went back that far. */
    long base() {
        return current.address() - start;
    }

    /** Behind the present file's last byte. */
    long end() {
        return end;
    }

    /** Where the file behind the one with this offset begins. */
    long nextFile(long logOffset) {
        return store.logFileStart(logOffset) + store.logFileBytes();
    }

    String fileName() {
        return current.toString();
    }

    /** A new batch: nothing points into earlier files any more. */
    void forgetEarlier() throws IOException {
        for (MappedFile file : earlier) {
            file.release(true);
        }
        earlier.clear();
    }

    /** Gives all files back; see {@link MappedFile#release}. */
    void close(boolean unmap) throws IOException {
        for (MappedFile file : earlier) {
            file.release(unmap);
        }
        earlier.clear();
        if (current != null) {
            current.release(unmap);
            current = null;
        }
    }
}
