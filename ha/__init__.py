"""Replication: the master's HA writer, the waiter for replicas, the slave's HA client, on RocketMQ's HA stream."""
