"""Observation of a client: message trace, metrics, OpenTelemetry spans.

All of it is off unless settings enable it. May import: ringmq.remoting.
"""
