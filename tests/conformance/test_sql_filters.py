"""Stock Java consumers with SQL92 conditions, the same program against both brokers: push, lite pull, plain pulls."""

from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient

COUNT = 200
EXPRESSIONS = {
    "(amount BETWEEN 30 AND 39 OR region = 'eu') AND TAGS <> 'Tag1'": lambda n: (
        (30 <= n <= 39 or n % 10 == 0) and n % 3 != 1
    ),
    "amount > 190 AND region IS NULL AND amount NOT IN ('193', '199')": lambda n: (
        n > 190 and n % 10 and n not in (193, 199)
    ),
}


def test_java_consumers_filter_by_sql92(server: Server, stock_client: StockClient) -> None:
    for number, (expression, wants) in enumerate(EXPRESSIONS.items()):
        wanted = sorted(str(n) for n in range(COUNT) if wants(n))
        seen = stock_client.call(
            "filters", server.namesrv, topic=f"Sql{number}", expression=expression, count=COUNT, wanted=len(wanted)
        )
        counts = {kind: len(seen[kind]) for kind in ("push", "litePull", "pull")}
        print(f"{server.kind}: {expression}: {counts} of {len(wanted)}, wrong expression {seen['wrong']}")
        assert wanted
        for kind in counts:
            assert sorted(seen[kind]) == wanted, kind
        assert seen["wrong"] == {"code": 23}
