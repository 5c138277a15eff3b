"""Replies of consumers to requests (324, 325): each is pushed to its requester, and stored.

`cases` decides whether a request can be a reply, `push` makes the request 326 of it. `service` has control push it and
write store it, and answers when both are over. `questions` is control's part.
"""
