"""What a client's connections have in common: time-outs, TLS, and the hooks that see what goes out and comes in.

`Producer`, `Consumer` and `Cluster`, asyncio and blocking, take a `ConnectionSettings` as `settings=`. No IO here.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from ringmq.client.interceptors import Interceptor
from ringmq.remoting.command import RemotingCommand

TIMEOUT_MS_MAX = 600_000

RequestHook = Callable[[str, RemotingCommand], None]
"""(address, request) just before it is encoded, every attempt anew. It may add `ext_fields` (a signature, say) and
should be quick: it runs where the requests of all of the client's users are made."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How connections are encrypted and whom they trust. Servers are verified unless `verify` is False.

    `ca_file` (PEM) replaces the system's authorities; `certificate_file` with `key_file` is shown to servers that ask
    for one; `server_name` is checked in the place of the address's host.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    server_name: str | None = None

    def __post_init__(self) -> None:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("tls.key_file needs tls.certificate_file")

    def context(self) -> ssl.SSLContext:
        """A context by these settings. Raises ValueError naming the file that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"tls.ca_file {self.ca_file!r} cannot be used: {error}") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_file is not None:
            try:
                context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
            except (OSError, ssl.SSLError) as error:
                raise ValueError(f"tls.certificate_file {self.certificate_file!r} cannot be used: {error}") from error
        return context


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Times in ms, at most ten minutes. `request_timeout_ms` is that of the questions which a client asks by itself
    (routes, offsets, group members); sends have `RetryPolicy.budget_ms`, pulls `PullOptions.timeout_ms`.

    `before_request` sees every request in this order before it is encoded; `interceptors` see messages.
    """

    connect_timeout_ms: int = 3000
    request_timeout_ms: int = 3000
    tls: TlsSettings | None = None
    before_request: tuple[RequestHook, ...] = ()
    interceptors: tuple[Interceptor, ...] = ()

    def __post_init__(self) -> None:
        for name in ("connect_timeout_ms", "request_timeout_ms"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be a whole number of ms, not {value!r}")
            if not 1 <= value <= TIMEOUT_MS_MAX:
                raise ValueError(f"{name} must be 1 to {TIMEOUT_MS_MAX}, not {value}")

    def request_hook(self) -> RequestHook | None:
        """All hooks as one; None when there are none, so that the fast ways need not ask for each request."""
        hooks = self.before_request
        if len(hooks) <= 1:
            return hooks[0] if hooks else None

        def run_all(address: str, request: RemotingCommand) -> None:
            for hook in hooks:
                hook(address, request)

        return run_all
