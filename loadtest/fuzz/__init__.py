"""Fuzz: damaged frames and streams against the C core under sanitizers, and against running servers over sockets."""
