"""A pytest plugin with a real broker for tests of programs that use RingMQ, and the same broker for other test tools.

Owns the start and the end of a broker for a test session, and a topic for each test. May import: ringmq.client,
ringmq.remoting, ringmq.loadtest (a broker as a child process), ringmq.cli (topics).
"""
