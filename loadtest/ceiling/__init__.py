"""Programs in C that stand for limits: a server that only copies, a link with a delay."""
