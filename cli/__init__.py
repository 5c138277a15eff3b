"""The `ringmq` command. Each command's module is loaded only when it is called.

May import: ringmq.client, ringmq.remoting; the rest only inside functions.
"""
