"""All bodies in queue 0 of a topic, as a JSON list: `python -m ... ADDRESS TOPIC`."""

import json
import sys

from ringmq.remoting.message import decode_messages
from tests.raw_client import RawClient


def main(address: str, topic: str) -> None:
    """Pull until nothing is found."""
    bodies: list[str] = []
    with RawClient(address, 30) as client:
        while (answer := client.pull(topic, 0, len(bodies))).code == 0:
            bodies += [bytes(message.body).decode() for message in decode_messages(answer.body)]
    print(json.dumps(bodies))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
