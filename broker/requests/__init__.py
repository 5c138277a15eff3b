"""Requests of clients in Python: what any role needs that answers clients.

A record of an inbox becomes a `Request` of a `Connection`; a handler gives an `Answer`, at once or in slices; what
follows are effects, which `outlets` puts into the rings of the read workers.
"""
