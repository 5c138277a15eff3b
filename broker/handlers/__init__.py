"""Requests that reach control, a module per kind; `table` says which function answers which code.

They are pure: what they want done leaves through the outbox, the control shell acts.
"""
