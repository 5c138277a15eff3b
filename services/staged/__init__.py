"""Staged writes: rows that are invisible until the commit of their batch publishes them once (docs/staged-writes.md).

`commits` decides, over `events`. `writes` is the guest, `requests` reads what clients ask. `bodies` is what is
appended, `commit_records` what the log keeps of a decision, `recovery` what follows from that at a start, and
`open_commits` tells whether the store holds work.
"""
