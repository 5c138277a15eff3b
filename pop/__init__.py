"""POP: consumers take single messages instead of owning queues. [docs/pop.md] tells what is promised.

`window_twin.py` and native/src/pop/ have the window: what each group holds of each queue. `worker.py` is the process.
"""
