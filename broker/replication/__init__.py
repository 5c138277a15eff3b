"""Control's part of replication: its state of slaves or of the master, and the view and decisions of operators.

The stream and its policies are in `ringmq.ha`.
"""
