"""Advice for a store that does not load: the settings with which it was made, as its files show them, or a repair."""

from ringmq.broker.config.broker_config import BrokerConfig, ConfigError
from ringmq.broker.config.relations import changed
from ringmq.broker.config.run_config import store_config
from ringmq.store.log_loss import loss_remedy, size_options, sound_sizes

RESTORE = "no command mends it: restore the store from a copy"


def load_advice(config: BrokerConfig) -> str:
    """The next step after StoreLoadError: `--set` with the sizes of the files, a repair, or to restore the store.

    Sizes are proposed only if the broker accepts them.
    """
    given = store_config(config)
    sizes = sound_sizes(given)
    try:
        changed(config, sizes)
    except (ConfigError, ValueError):
        sizes = {}
    if sizes:
        return f"start with the sizes of its files, add to the command: {size_options(sizes)}"
    try:
        return loss_remedy(given, by_sizes=False) or RESTORE
    except OSError:
        return RESTORE
