package io.ringmq.spark.read;

import java.io.IOException;

/** Rows that were planned are gone. */
public final class DataLossException extends IOException {
    private static final long serialVersionUID = 1L;

    DataLossException(String message, Throwable cause) {
        super(message + "; failOnDataLoss=false goes on without them", cause);
    }
}
