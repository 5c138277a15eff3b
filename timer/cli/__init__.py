"""`ringmq timer`: what waits, as a client and as metrics see it."""
