"""The store on disk: commit log, consume queues, index, checkpoint, config files, recovery and retention.

Owns the bytes on disk (RocketMQ 5.3's, see `layout`) and every rule about them. The hot path (append, dispatch, pull)
runs in `native/`. This package holds the readers, the decisions and the checks. Every read takes a `readable_offset`:
bytes behind it do not exist for the caller. Imports `native` and `fastjson` only.
"""
