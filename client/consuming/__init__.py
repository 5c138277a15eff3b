"""Parts of `Consumer`: membership, queues and their locks, pulls, waiting messages, handlers, offsets."""
