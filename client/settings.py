"""Settings of a client's connections: time-outs, TLS, credentials, and the hooks that see requests and answers.

`Producer`, `Consumer` and `Cluster`, asyncio and blocking, take a `ConnectionSettings` as `settings=`. No IO here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ringmq.client.arguments import check_kinds, check_optional
from ringmq.client.interceptors import Interceptor
from ringmq.client.namespaces import check_namespace
from ringmq.client.observing.metrics import ClientMetrics
from ringmq.client.observing.trace_buffer import TraceSettings
from ringmq.client.security.credentials import Credentials
from ringmq.client.security.signing import RequestSigner
from ringmq.client.security.tls import TlsSettings
from ringmq.remoting.command import RemotingCommand

TIMEOUT_MS_MAX = 600_000

RequestHook = Callable[[str, RemotingCommand], None]
"""Called with (address, request) just before the encoding, for every attempt.

The hook may add `ext_fields` (a signature, say). It must be quick: it runs on the path of all requests of the client.
"""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Times in ms, at most ten minutes. `request_timeout_ms` applies to a client's own requests.

    These are routes, offsets and group members. Sends have `RetryPolicy.budget_ms`, pulls `PullOptions.timeout_ms`.

    `tls` encrypts connections, `credentials` sign requests. Topics and groups are those of `namespace` ("" for none).
    `trace` writes message trace, `metrics` counts. The hooks `before_request` see every request in this order before
    it is signed and encoded. `interceptors` see messages.
    """

    connect_timeout_ms: int = 3000
    request_timeout_ms: int = 3000
    tls: TlsSettings | None = None
    credentials: Credentials | None = None
    namespace: str = ""
    trace: TraceSettings | None = None
    metrics: ClientMetrics | None = None
    before_request: tuple[RequestHook, ...] = ()
    interceptors: tuple[Interceptor, ...] = ()

    def __post_init__(self) -> None:
        for name in ("connect_timeout_ms", "request_timeout_ms"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be a whole number of ms, not {value!r}")
            if not 1 <= value <= TIMEOUT_MS_MAX:
                raise ValueError(f"{name} must be 1 to {TIMEOUT_MS_MAX}, not {value}")
        check_optional(TlsSettings, tls=self.tls)
        if not isinstance(self.credentials, Credentials | None):  # the value may be a secret
            raise TypeError(f"credentials must be of type Credentials, not {type(self.credentials).__name__}")
        check_optional(TraceSettings, trace=self.trace)
        check_optional(ClientMetrics, metrics=self.metrics)
        check_kinds((tuple, list), before_request=self.before_request, interceptors=self.interceptors)
        for hook in self.before_request:
            if not callable(hook):
                raise TypeError(f"before_request must hold functions, not {hook!r}")
        for interceptor in self.interceptors:
            check_kinds(Interceptor, interceptors=interceptor)
        check_kinds(str, namespace=self.namespace)
        check_namespace(self.namespace)

    def request_hook(self) -> RequestHook | None:
        """Return all hooks as one, the signature last. None without hooks, so that fast paths skip the check."""
        hooks = self.before_request
        if self.credentials is not None:
            signer = RequestSigner(self.credentials)
            hooks = (*hooks, lambda address, request: signer.sign(request))
        if len(hooks) <= 1:
            return hooks[0] if hooks else None

        def run_all(address: str, request: RemotingCommand) -> None:
            for hook in hooks:
                hook(address, request)

        return run_all

    def only_signer(self) -> RequestSigner | None:
        """Return the signer if no other hook sees requests.

        Fast paths that encode frames themselves can then sign them.
        """
        return None if self.credentials is None or self.before_request else RequestSigner(self.credentials)
