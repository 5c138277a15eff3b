package io.ringmq.spark.read;

import io.ringmq.spark.store.StoreFolder;
import java.io.Closeable;
import java.io.IOException;

/** Reads store times of single records, for planning. */
public final class RecordTimes implements Closeable {
    private final OpenLog log;
    private final RecordDecoder decoder = new RecordDecoder(false);

    public RecordTimes(StoreFolder store) {
        log = new OpenLog(store, false);
    }

    /** Returns the store time in ms of the record at a log offset, -1 if it no longer exists. */
    public long storeTimeMs(long logOffset) throws IOException {
        if (!log.open(logOffset)) {
            return -1;
        }
        log.forgetEarlier();
        long record = log.base() + logOffset;
        return decoder.decode(record, log.end() - logOffset, logOffset) > 0 ? RecordDecoder.storeTimeMs(record) : -1;
    }

    @Override
    public void close() throws IOException {
        log.close(true);
    }
}
