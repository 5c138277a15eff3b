package io.ringmq.spark.read;

import java.io.IOException;

/** Planned rows no longer exist. */
public final class DataLossException extends IOException {
    private static final long serialVersionUID = 1L;

    DataLossException(String message, Throwable cause) {
        super(message + "; failOnDataLoss=false goes on without them", cause);
    }
}
