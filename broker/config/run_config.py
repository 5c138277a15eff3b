"""The resolved configuration for the workers: one private file beside the plane, which the server writes."""

import json
import os
from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.ipc.segment import segment_path
from ringmq.store.config import StoreConfig


def run_config_path(plane_name: str) -> Path:
    """Path of the configuration of a running broker."""
    return segment_path(plane_name, "config")


def write_run_config(plane_name: str, config: BrokerConfig) -> Path:
    """Write every property, replacing the file as a whole. Only the owner may read it."""
    path = run_config_path(plane_name)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(config.as_properties(), file)
    fresh.replace(path)
    return path


def read_run_config(path: Path) -> BrokerConfig:
    """The configuration that the server has resolved."""
    return changed(BrokerConfig(), json.loads(path.read_text()))


def store_config(config: BrokerConfig) -> StoreConfig:
    """The part of the configuration that the store needs. storePathRootDir must be set."""
    return StoreConfig.from_properties(Path(config.store_path_root_dir), config.as_properties())
