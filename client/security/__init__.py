"""Identity of client and server: credentials, signatures of requests, TLS.

The only IO is the reading of files that settings name. May import: ringmq.remoting.
"""
