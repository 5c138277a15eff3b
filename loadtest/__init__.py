"""Load, measurement and drills from outside: observations that only a client can make.

A part is a package, and an installed wheel has `load`, `bench`, `locust` and `stock` alone (setup.py).
May import: ringmq.client, ringmq.remoting.
"""
