"""The doctor of a machine and a store: facts, checks over them, and the debug bundle for an inquiry.

`gather_*` collect facts and grade nothing. `check_*` are pure functions from facts to findings.
"""
