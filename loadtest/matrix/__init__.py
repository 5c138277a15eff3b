"""The replication matrix: topics, body sizes, consumers and policies on a master and its slave."""
