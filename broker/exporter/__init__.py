"""The metrics worker: /metrics, /health and /ready over HTTP, read from shared memory alone.

`table` names every metric, `text` is the format, `names` and `tables` read the plane, `topics`, `groups` and `engine`
make the families, `server` is the HTTP part, `worker` the process.
"""
