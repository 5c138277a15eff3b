"""The error of a broker that cannot start."""


class StartError(RuntimeError):
    """The broker cannot start. The message says what to do. `status` is the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status
