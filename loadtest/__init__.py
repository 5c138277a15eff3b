"""Load, measurement and drills from outside: observations that only a client can make.

Each part is a package. An installed wheel has `load`, `bench`, `locust` and `stock` alone (setup.py). May import:
ringmq.client, ringmq.remoting.
"""
