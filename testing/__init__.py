"""For tests of programs that use RingMQ: a pytest plugin with a real broker, and that broker for other test tools.

Owns the start and the end of a broker for the time of a test session, and topics of a test's own.
May import: ringmq.client, ringmq.remoting, ringmq.loadtest (a broker as a child process), ringmq.cli (topics).
"""
