"""Who we are to a server, and who it is to us: credentials, signatures of requests, TLS.

No IO of its own but the reading of files that settings name. May import: ringmq.remoting.
"""
