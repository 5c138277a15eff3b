"""The route registry: which broker serves which topic. A pure core under a thin asyncio shell.

May import: ringmq.ipc, ringmq.remoting.
"""
