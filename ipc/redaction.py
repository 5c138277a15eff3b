"""Hides secrets in texts and values that leave the broker: log lines and the support bundle."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
_SECRET_WORDS = (
    *("secret", "password", "passwd", "passphrase", r"(?<![a-z])pwd(?![a-z])", "credential", "token"),
    *("access[_-]?key", "api[_-]?key", "private[_-]?key", "authorization", "cookie"),
)
_SECRET_WORD = f"(?:{'|'.join(_SECRET_WORDS)})[\\w.-]{{0,64}}"
_NAMED = re.compile(rf"(?i){_SECRET_WORD}")
_SECRETS = (
    re.compile(rf"(?im)(?P<shown>{_SECRET_WORD}[\"']?\s*[=:]\s*)(?P<hidden>\S[^\r\n]*)"),
    re.compile(rf"(?im)(?P<shown>(?<!\S)--?[\w.-]{{0,64}}?{_SECRET_WORD} +)(?P<hidden>\S+)"),
    re.compile(r"(?i)(?P<shown>\b(?:bearer|basic)\s+)(?P<hidden>[a-z0-9._~+/-]{8,}=*)"),
    re.compile(r"(?P<shown>\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/:@\"']*:)(?P<hidden>[^\s/@\"']+)(?=@)"),
    re.compile(r"(?s)(?P<shown>-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----)(?P<hidden>.*?)(?=-----END|\Z)"),
)
"""Values behind secret names; behind secret options of a command line; of HTTP's Authorization; passwords in URLs; the
content of private keys, also of a key whose end is cut off."""


def redacted(text: str) -> str:
    """Return `text` with secrets hidden. Behind `secretKey=`, `"password": ` and the like that is the rest of the
    line."""
    for secret in _SECRETS:
        text = secret.sub(rf"\g<shown>{HIDDEN}", text)
    return text


def redacted_value(value: object) -> object:
    """Return a value of JSON without secrets: neither in its texts nor behind secret names."""
    if isinstance(value, dict):
        return {
            key: HIDDEN if isinstance(key, str) and item and _NAMED.search(key) else redacted_value(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted_value(item) for item in value]
    return redacted(value) if isinstance(value, str) else value
