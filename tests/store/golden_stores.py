"""Settings of the golden stores (their broker-settings.txt)."""

from pathlib import Path

from ringmq.store.config import StoreConfig

SIZES = {"consume_queue_file_bytes": 6000, "index_slots": 100, "index_entries": 400}


def basic_config(root: Path) -> StoreConfig:
    """Settings of golden/store-basic/broker-settings.txt."""
    return StoreConfig(
        root=root,
        commit_log_file_bytes=1048576,
        batch_consume_queue_file_bytes=4600,
        **SIZES,  # type: ignore[arg-type]
    )


def pop_config(root: Path) -> StoreConfig:
    """As golden/README.md says of store-pop."""
    return StoreConfig(root=root, commit_log_file_bytes=1048576, consume_queue_file_bytes=20_000)


def crashed_config(root: Path) -> StoreConfig:
    """Settings of golden/store-crashed/broker-settings.txt."""
    return StoreConfig(root=root, commit_log_file_bytes=262144, **SIZES)  # type: ignore[arg-type]
