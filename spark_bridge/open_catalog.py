"""The choice of a read's catalog. Modules of catalogs are imported where they are used."""

from ringmq.spark_bridge.catalog import Catalog
from ringmq.spark_bridge.options import ReadOptions


def open_catalog(options: ReadOptions) -> Catalog:
    """Return the catalog of a read: by the store's files if they are on this host, else by the brokers of
    `bootstrap`.

    Raises `ReadError` naming the file or broker that cannot be found or read.
    """
    if options.store is None:
        from ringmq.spark_bridge.combined_catalog import open_by_bootstrap

        return open_by_bootstrap(options)
    from ringmq.spark_bridge.store_catalog import StoreCatalog

    files = StoreCatalog(options)
    if options.bootstrap is None:
        return files
    from ringmq.spark_bridge.combined_catalog import CombinedCatalog

    return CombinedCatalog(files, options.bootstrap)
