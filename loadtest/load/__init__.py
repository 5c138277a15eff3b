"""Brokers under load: the native load generator, RingMQ and stock as targets, their processes."""
