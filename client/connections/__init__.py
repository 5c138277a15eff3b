"""Conversations with servers: connections, requests over them, name servers and routes, heartbeats."""
