"""SQL92 filters: conditions over a message's properties, in the grammar and with the semantics of RocketMQ 5.3.3.

`compiler` turns an expression into a `Program`: instructions for a small stack machine. `evaluator` runs a program in
Python. `native/src/filter/filter_program.c` runs the encoded form over the properties of a stored record; the two are
twins.
"""
