package io.ringmq.spark.read;

/** Bytes of the log are not what they should be; the text says why, and on its way to Spark also where. */
public final class BrokenRecordException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BrokenRecordException(String message) {
        super(message);
    }
}
