"""`ringmq transaction`: open transactions, as a client sees them."""
