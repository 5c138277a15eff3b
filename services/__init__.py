"""Workers beside control that act on stored messages, and the code they share.

The worker `services` hosts services that clients ask for. A service answers the request codes that the worker's
row names, and appends to the log through the worker's port. The worker starts at the first of these requests, or when
the store holds open work. It ends when it has no work. `kit` is what all of them stand on, `republisher` is shared by
those that publish stored records again.
"""
