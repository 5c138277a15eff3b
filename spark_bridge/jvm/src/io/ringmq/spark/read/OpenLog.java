package io.ringmq.spark.read;

import io.ringmq.spark.store.MappedFile;
import io.ringmq.spark.store.StoreFolder;
import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.List;

/** The mapped log files of a task: the current one, and those that rows of the current batch point into. */
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

    /**
     * Opens the file with this offset. Returns false if the file is gone and data loss is allowed, else raises {@link
     * DataLossException}.
     */
    boolean open(long logOffset) throws IOException {
        if (current != null && logOffset >= start && logOffset < end) {
            return true;
        }
        try {
            MappedFile next = MappedFile.acquire(store.logFile(logOffset));
            if (!store.isSame()) {
                next.release(true);
                throw new DataLossException(
                        store.logFile(logOffset) + ": the store was deleted and created again since the read was planned;"
                                + " run the read again",
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
                                + ": the file was deleted since the read was planned, by retention or with the store;"
                                + " failOnDataLoss=false skips it",
                        gone);
            }
            return false;
        }
        start = store.logFileStart(logOffset);
        end = start + current.size();
        return true;
    }

    /** Returns the address of log offset 0, extrapolated from the current file. */
    long base() {
        return current.address() - start;
    }

    /** Returns the log offset behind the last byte of the current file. */
    long end() {
        return end;
    }

    /** Returns the log offset at which the next file begins. */
    long nextFile(long logOffset) {
        return store.logFileStart(logOffset) + store.logFileBytes();
    }

    String fileName() {
        return current.toString();
    }

    /** Begins a batch: no row points into earlier files. */
    void forgetEarlier() throws IOException {
        for (MappedFile file : earlier) {
            file.release(true);
        }
        earlier.clear();
    }

    /** Releases all files; see {@link MappedFile#release}. */
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
