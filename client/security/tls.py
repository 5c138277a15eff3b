"""TLS to brokers and name servers: settings, the context made of them, and texts of errors.

A server is verified unless the settings disable it explicitly.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from ringmq.client.arguments import check_file, check_flags, check_optional
from ringmq.client.errors import ConnectError, TlsError
from ringmq.client.security.files import expanded

# OpenSSL's X509_V_ERR_*: unable to get issuer (2, 20), self-signed leaf or chain (18, 19), unverifiable leaf (21),
# invalid CA (24); not yet valid, expired (9, 10); host name, IP address (62, 64)
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21, 24})
_NOT_IN_TIME = frozenset({9, 10})
_WRONG_NAME = frozenset({62, 64})
_WANTS_CERTIFICATE = ("certificate required", "bad certificate", "alert unknown ca", "alert handshake failure")
_NO_TLS = ("wrong version number", "record layer failure", "http request")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Settings of TLS. Files are PEM.

    `ca_file` holds the certificates of accepted CAs, by default those that this host trusts. `certificate_file` with
    `key_file` (and `key_password`) is shown to servers that ask for a client's certificate. `server_name` is the
    expected name in certificates, if it differs from the address that a broker registered with (often an IP address).
    `insecure_skip_verification` accepts any certificate: any host on the route can then read and change everything.
    Raises ValueError for contradictions.
    """

    ca_file: str | Path | None = None
    certificate_file: str | Path | None = None
    key_file: str | Path | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    insecure_skip_verification: bool = False

    def __post_init__(self) -> None:
        check_file(ca_file=self.ca_file, certificate_file=self.certificate_file, key_file=self.key_file)
        check_optional(str, server_name=self.server_name)
        if not isinstance(self.key_password, str | None):  # its value stays out of the text
            raise TypeError(f"key_password must be of type str, not {type(self.key_password).__name__}")
        check_flags(insecure_skip_verification=self.insecure_skip_verification)
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("tls.key_file needs tls.certificate_file")
        if self.insecure_skip_verification and (self.ca_file is not None or self.server_name is not None):
            raise ValueError(
                "tls.insecure_skip_verification verifies nothing: tls.ca_file and tls.server_name mean nothing with it"
            )

    def name_to_verify(self, host: str) -> str:
        """Return the name that the certificate of the server at `host` must carry."""
        return self.server_name or host

    def context(self) -> ssl.SSLContext:
        """Return a client's context, TLS 1.2 or later.

        Raises ValueError that names the setting with the unusable file.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.insecure_skip_verification:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca_file is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            self._load_ca(context, expanded(self.ca_file, "tls.ca_file"))
        if self.certificate_file is not None:
            self._load_own(context, expanded(self.certificate_file, "tls.certificate_file"))
        return context

    def _load_ca(self, context: ssl.SSLContext, path: Path) -> None:
        try:
            context.load_verify_locations(cafile=path)
        except ssl.SSLError:
            raise ValueError(f"tls.ca_file {path} holds no PEM certificate") from None
        except OSError as error:
            raise ValueError(f"tls.ca_file {path} cannot be read: {error.strerror}") from None

    def _load_own(self, context: ssl.SSLContext, cert: Path) -> None:
        key = cert if self.key_file is None else expanded(self.key_file, "tls.key_file")
        for name, path in (("certificate_file", cert), ("key_file", key)):
            try:
                path.open("rb").close()
            except OSError as error:
                raise ValueError(f"tls.{name} {path} cannot be read: {error.strerror}") from None
        try:
            # a callable, so that OpenSSL never asks for the password on the terminal
            context.load_cert_chain(cert, key, password=lambda: self.key_password or "")
        except ssl.SSLError as error:
            reason = "" if not error.reason else f" ({error.reason.replace('_', ' ').lower()})"
            raise ValueError(
                f"tls.certificate_file {cert} and tls.key_file {key} are no certificate with its key, "
                f"or key_password does not open the key{reason}"
            ) from None


def connect_error(address: str, error: OSError, *, tls: bool) -> ConnectError:
    """Return the error for a failed connection to `address`, with or without TLS."""
    kind = TlsError if isinstance(error, ssl.SSLCertVerificationError) else ConnectError
    return kind(address, describe_socket_failure(error, in_handshake=tls))


def describe_socket_failure(error: Exception, *, in_handshake: bool) -> str:
    """Return the text for a connection that failed with `error`. If TLS is the cause, it names the deciding setting.

    With `in_handshake` TLS was being negotiated, so an end without an error concerns TLS.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _describe_refused(error)
    if in_handshake and isinstance(error, ssl.SSLEOFError | ConnectionError):
        return (
            "the connection ended during the TLS handshake: the server does not speak TLS (RingMQ does not yet; stock "
            "with tls.server.mode=disabled) or refuses ours; use settings without tls, or see the server's log"
        )
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if any(words in reason for words in _WANTS_CERTIFICATE):
            return f"the server wants a client certificate that it trusts, tls.certificate_file ({reason})"
        if any(words in reason for words in _NO_TLS):
            return f"what answers does not speak TLS; use settings without tls ({reason})"
        return f"TLS: {reason}"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio's words are "Connect call failed"
    return getattr(error, "strerror", None) or str(error)


def _describe_refused(error: ssl.SSLCertVerificationError) -> str:
    code, words = error.verify_code, error.verify_message
    if code in _UNKNOWN_ISSUER:
        return (
            f"its certificate is not signed by an authority of tls.ca_file (without one: of this host): {words}; "
            "name the file of the authority that signed it"
        )
    if code in _WRONG_NAME:
        return (
            f"its certificate is for another name: {words}; set tls.server_name to a name in the certificate, "
            "if it is the server you mean"
        )
    if code in _NOT_IN_TIME:
        return f"its certificate is not valid now: {words}; look at the certificate and at this host's clock"
    return f"its certificate is refused: {words}"
