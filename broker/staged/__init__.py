"""Staged writes: rows that are invisible until the commit of their batch publishes them once (docs/staged-writes.md).

`commits` decides, over `events`; `writes` is the way in and out, `bodies` what is appended, `commit_records` what the
log keeps of a decision, `recovery` what follows from that at a start, `requests` the handlers.
"""
