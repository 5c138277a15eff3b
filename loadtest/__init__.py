"""Load, measurement and drills from outside: what only a client can see.

Owns the native load generator and ceiling (own C build), side-by-side runs with stock RocketMQ, the drill
and its checker.
May import: ringmq.client, ringmq.remoting.
"""
