package io.ringmq.spark.read;

/** A damaged record. The message has the reason, and the position when it reaches Spark. */
public final class BrokenRecordException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BrokenRecordException(String message) {
        super(message);
    }
}
