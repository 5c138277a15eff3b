"""The table of producers: the connection of a client, whatever comes and goes."""

import random

from ringmq.broker.requests.request import Connection
from ringmq.broker.tables.consumers import Member
from ringmq.broker.tables.producers import ProducerTable
from tests.broker.fakes import peer


def member(client_id: str) -> Member:
    return Member(client_id, "JAVA", 479, 1)


def test_the_newest_connection_of_a_client_counts() -> None:
    table = ProducerTable()
    assert table.of_client("c") is None
    table.register("A", peer(1), member("c"))
    table.register("A", peer(2), member("c"))
    table.register("B", peer(1), member("c"))
    assert table.of_client("c") == peer(2)
    table.drop(peer(2))
    assert table.of_client("c") == peer(1)
    table.unregister("A", peer(1))
    assert table.of_client("c") == peer(1), "group B is left"
    table.unregister("B", peer(1))
    assert table.of_client("c") is None


def test_a_connection_with_another_client_id_is_another_client() -> None:
    table = ProducerTable()
    table.register("A", peer(1), member("old"))
    table.register("A", peer(1), member("new"))
    assert (table.of_client("old"), table.of_client("new")) == (None, peer(1))
    assert table.memberships == 1


def test_the_clients_are_those_of_the_members() -> None:
    chance, table = random.Random(5), ProducerTable()
    for _ in range(3000):
        group, connection = chance.choice("ABC"), peer(chance.randrange(4))
        match chance.randrange(4):
            case 0:
                table.unregister(group, connection)
            case 1:
                table.drop(connection)
            case _:
                table.register(group, connection, member(chance.choice("xyz")))
        clients = dict[str, set[Connection]]()
        for _, members in table:
            for one, entry in members.items():
                clients.setdefault(entry.client_id, set()).add(one)
        for client_id in "xyz":
            found = table.of_client(client_id)
            assert (found in clients[client_id]) if client_id in clients else found is None
