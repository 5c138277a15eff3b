"""The Spark bench: the bridge beside Parquet, the stock client and native pulls."""
