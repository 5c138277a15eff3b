"""Staged writes: rows that are invisible until the commit of their batch publishes them once (docs/staged-writes.md).

`commits` decides, over `events`. `writes` is the service. `requests` reads the requests of clients. `bodies` has the
bytes to append, `commit_records` the records of a decision in the log. `recovery` reads them at a start, and
`open_commits` tells if the store holds work.
"""
