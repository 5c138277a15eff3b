"""The metrics worker: /metrics, /health and /ready over HTTP, read from shared memory alone.

`table` names every metric, and `text` is the format. `labels` and `tables` read the plane. `topics`, `groups` and
`engine` make the families, guests those of their own (`sources`). `server` is the HTTP part, and `worker` the process.
"""
