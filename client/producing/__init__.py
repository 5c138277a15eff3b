"""Behind `Producer`: requests and their results, retries, room, batches that gather, transactions, replies."""
