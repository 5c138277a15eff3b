"""What an operator wants to know about a machine and a store: facts, checks over them, and the bundle for an inquiry.

`gather_*` look at the machine and judge nothing, `check_*` are pure functions from facts to findings.
"""
