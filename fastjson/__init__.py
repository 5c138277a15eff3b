"""fastjson's dialect of JSON, which RocketMQ uses in frames and files: one reader, and the writer of config files.

May import: nothing.
"""
