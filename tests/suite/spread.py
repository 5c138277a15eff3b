"""A plugin of pytest: gives whole groups of tests to the workers of pytest-xdist, those that take longest first."""

from typing import Any

import pytest

from tests.suite.groups import LONGEST_FIRST, group_of, uses_stock


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A group that takes long begins early, and files that share a stock broker follow each other."""
    ranks, root = {name: rank for rank, name in enumerate(LONGEST_FIRST)}, config.rootpath
    items.sort(key=lambda item: (ranks.get(group_of(item.path, root), len(ranks)), not uses_stock(item.path, root)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups in the order of their tests."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(config.rootpath / nodeid.partition("::")[0], config.rootpath)

        def _reschedule(self, node: Any) -> None:
            """A worker runs a test once it knows the next one, or that none comes. One test alone would never run."""
            super()._reschedule(node)
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

        def remove_node(self, node: Any) -> str | None:
            """A test that has ended its worker is not given to the next one, which goes on behind it."""
            work = self.assigned_work[node]
            crashed = next((test for scope in work.values() for test, is_done in scope.items() if not is_done), None)
            for scope in work.values():
                if crashed in scope:
                    scope[crashed] = True
            super().remove_node(node)
            return crashed

    config.option.loadscopereorder = False  # by the number of tests
    return GroupScheduling(config, log)
