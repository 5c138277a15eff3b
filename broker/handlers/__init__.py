"""Requests that reach control, a module per kind; its class names the parts of the broker that it may touch.

They are pure: what they want done leaves through the outbox, the control shell acts.
"""
