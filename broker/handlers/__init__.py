"""Requests that reach control, a module per kind. The class of a module names the parts of the broker that it may use.

Handlers are pure: their effects leave through the outbox, and the control shell performs them.
"""
