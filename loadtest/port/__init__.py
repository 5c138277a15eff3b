"""The port bench: a worker that republishes records, and clients beside it."""
