package io.ringmq.spark.read;

/** Bytes of the log are not what they should be; the text names file or place and reason. */
public final class BrokenRecordException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BrokenRecordException(String message) {
        super(message);
    }

    BrokenRecordException(String message, Throwable cause) {
        super(message, cause);
    }
}
