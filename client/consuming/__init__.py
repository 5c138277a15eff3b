"""Behind `Consumer`: membership, queues and their locks, pulls, what waits, handlers, offsets."""
