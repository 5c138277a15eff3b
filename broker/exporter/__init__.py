"""The metrics worker: /metrics, /health and /ready over HTTP, read from shared memory alone.

`table` names every metric, and `text` is the format. `labels` and `tables` read the plane. `topics`, `groups`,
`delays`, `timers`, `transactions` and `engine` make the families. `server` is the HTTP part, and `worker` the process.
"""
