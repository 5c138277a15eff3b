"""Programs in C that measure limits: a server that only copies, a link with a delay."""
