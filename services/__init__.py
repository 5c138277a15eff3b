"""Workers beside control that act on stored messages, and what they share.

The worker `services` hosts guests: services that clients ask for. A guest answers the request codes that the worker's
row names, and appends to the log through the worker's port. The worker starts at the first of these requests, or when
the store holds open work, and rests without work. `republisher` is what services share that publish records again.
"""
