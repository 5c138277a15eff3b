"""Bodies for comparisons: text like a web server's log, the same for the same seed. Pure.

It compresses about as well as real log lines do, which matters for comparisons with compressed files.
"""

import random

TEXT_BYTES = 1 << 20
SIZE_SPREAD = 0.1
_PATHS = ("blog", "images", "presentations", "projects", "articles", "scripts", "style", "files", "tags", "favicon")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0.1700.107 Safari/537.36",
    "Mozilla/5.0 (Windows NT 6.1; WOW64; rv:27.0) Gecko/20100101 Firefox/27.0",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "UniversalFeedParser/4.2-pre-314-svn +http://feedparser.org/",
)


def log_text(seed: int, size_bytes: int = TEXT_BYTES) -> bytes:
    """Return lines of an invented access log, `size_bytes` of them."""
    chance = random.Random(seed)
    lines: list[str] = []
    length = 0
    while length < size_bytes:
        address = ".".join(str(chance.randrange(1, 255)) for _ in range(4))
        path = "/".join(chance.choices(_PATHS, k=2)) + f"/{chance.getrandbits(40):x}"
        when = f"{chance.randrange(1, 29):02d}/May/2026:{chance.randrange(24):02d}:{chance.randrange(60):02d}:05"
        status = chance.choice((200, 200, 200, 200, 304, 404, 500))
        lines.append(
            f'{address} - - [{when} +0000] "GET /{path} HTTP/1.1" {status} {chance.randrange(200, 90000)} '
            f'"http://example.org/{chance.choice(_PATHS)}" "{chance.choice(_AGENTS)}"'
        )
        length += len(lines[-1]) + 1
    return "\n".join(lines).encode()[:size_bytes]


def bodies(seed: int, count: int, mean_bytes: int, mark: bytes) -> list[bytes]:
    """Return `count` bodies of `mean_bytes` +-10 %, each beginning with `mark`, the rest from anywhere in the text."""
    chance = random.Random(seed)
    text = log_text(seed)
    found = []
    for _ in range(count):
        size = round(mean_bytes * chance.uniform(1 - SIZE_SPREAD, 1 + SIZE_SPREAD)) - len(mark)
        at = chance.randrange(len(text) - size)
        found.append(mark + text[at : at + size])
    return found
