"""How cost grows with topics, queues, connections, backlog, groups, slow consumers and time."""
