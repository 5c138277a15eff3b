"""Parts of `Producer`: requests and results, retries, the in-flight limit, lingering batches, transactions, replies."""
