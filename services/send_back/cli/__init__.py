"""`ringmq group retry` and `ringmq group dlq`: messages that consumers have failed, as a client sees them."""
