"""fastjson's dialect of JSON, which RocketMQ writes into frames and files: one reader, and the writer of its files.

May import: nothing.
"""
