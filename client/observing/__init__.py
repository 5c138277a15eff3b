"""What can be seen of a client from outside: message trace, metrics, OpenTelemetry spans.

All of it is off unless settings ask for it. May import: ringmq.remoting.
"""
