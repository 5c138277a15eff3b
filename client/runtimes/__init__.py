"""What the SDK waits with: asyncio, or blocking sockets in plain threads under one monitor per client."""
