"""Requests of clients in Python, for any role that answers clients.

A record of an inbox becomes a `Request` of a `Connection`. A handler returns an `Answer`, at once or in slices. The
effects follow, and `reply_queue` puts them into the rings of the read workers.
"""
