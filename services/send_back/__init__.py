"""Messages that consumers send back (36): each is stored again, for a retry or among the dead letters.

Requests are `rows`. `cases` decides, over what the plane and the log show, `targets` names the queues of the copies,
`batches` stores them. `service` ties these together and answers.
"""
