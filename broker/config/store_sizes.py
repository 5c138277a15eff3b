"""Advice for a store that does not load: the settings with which it was made, as its files show them."""

from ringmq.broker.config.broker_config import BrokerConfig, ConfigError, changed
from ringmq.broker.config.run_config import store_config
from ringmq.store.inferred_config import different_sizes, with_index_sizes_of_files, with_sizes_of_files
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.message_store import MessageStore

RESTORE = "restore the store from a copy"


def load_advice(config: BrokerConfig) -> str:
    """The next step after StoreLoadError: `--set` with the sizes of the files, or to restore the store.

    Sizes are proposed only if the broker accepts them and every log file has the proposed size.
    """
    given = store_config(config)
    try:
        found = with_index_sizes_of_files(with_sizes_of_files(given))
        settings = different_sizes(found, given)
        changed(config, settings)
        MessageStore(found).commit_log.files.check_sizes()
    except (OSError, StoreLoadError, ConfigError, ValueError):
        return RESTORE
    if not settings:
        return RESTORE
    options = " ".join(f"--set {name}={value}" for name, value in settings.items())
    return f"start with the sizes of its files: {options}"
