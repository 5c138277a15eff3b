"""A message that becomes visible only if a local transaction succeeded.

python examples/transfer.py --namesrv 127.0.0.1:9876
"""

import argparse
import sqlite3
import sys
import uuid

from ringmq.client import ConsumeFrom, Message, MessageExt, SendError, TransactionState
from ringmq.client.blocking import Consumer, TransactionProducer


def main(namesrv: str, topic: str) -> None:
    """Book transfers and send messages. Messages of transfers that were not booked are never read."""
    with sqlite3.connect(":memory:", check_same_thread=False) as accounts:
        accounts.execute("create table booked (id text primary key, amount int check (amount <= 100))")

        def book(message: Message) -> TransactionState:
            try:
                with accounts:
                    accounts.execute("insert into booked values (?, ?)", (message.keys[0], int(message.body)))
            except sqlite3.IntegrityError:
                return TransactionState.ROLLBACK
            return TransactionState.COMMIT

        def check(message: MessageExt) -> TransactionState:
            """Return a transaction's state.

            The broker asks for it if no commit arrived, such as after a crash of this program.
            """
            found = accounts.execute("select 1 from booked where id = ?", (message.keys[0],)).fetchone()
            return TransactionState.COMMIT if found else TransactionState.ROLLBACK

        with TransactionProducer(namesrv, f"transfers_{topic}", check=check) as producer:
            run = uuid.uuid4().hex  # transfers of other runs have other ids
            for number, amount in enumerate((50, 500, 100)):
                message = Message(topic, str(amount).encode(), {"KEYS": f"transfer-{run}-{number}"})
                result = producer.send_in_transaction(message, book)
                print(f"transfer of {amount}: {result.state.name}")
        booked = dict(accounts.execute("select id, amount from booked"))
    read: list[int] = []
    with Consumer(topic, namesrv, f"ledger_{topic}", consume_from=ConsumeFrom.FIRST) as consumer:
        for message in consumer:
            consumer.ack(message)  # asking for the next one would do it, but the last message has none
            if booked.pop(message.keys[0], None) is not None:
                read.append(int(message.body))
            if not booked:
                break
    print(f"read: {sorted(read)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--topic", default="Transfer")
    options = parser.parse_args()
    try:
        main(options.namesrv, options.topic)
    except SendError as error:
        sys.exit(f"{error}")
