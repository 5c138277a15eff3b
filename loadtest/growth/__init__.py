"""Growth of costs with topics, queues, connections, backlog, groups, slow consumers and time."""
