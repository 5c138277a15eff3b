"""Messages that consumers send back (36): each is stored again, for a retry or among the dead letters.

`cases` decides, over what the plane and the log show. `service` answers the requests, `copies` stores the copies.
"""
