"""The SDK's two runtimes: asyncio, and blocking sockets in plain threads under one monitor per client."""
