"""One message, whatever the answer: `python -m ... ADDRESS TOPIC`."""

import sys

from tests.raw_client import RawClient

if __name__ == "__main__":
    with RawClient(sys.argv[1], 30) as client:
        answer = client.send(sys.argv[2], b"one")
        print(answer.code, answer.remark or "")
