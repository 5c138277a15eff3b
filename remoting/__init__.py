"""RocketMQ's remoting protocol as pure data and codecs, without IO.

Owns frames, both header serialisations, the table of codes, typed headers, JSON bodies, messages and names. May
import: ringmq.fastjson, ringmq.native (optional; everything works without it).
"""
