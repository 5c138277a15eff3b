"""Options of tables in Spark's catalog (`CREATE TABLE ... USING ringmq OPTIONS (...)`).

When such a table is made, its options come among the catalog's own properties and once more as `option.NAME`. When it
is read, Spark 4.3 gives a Python source no options at all, only the schema (PythonTable drops the properties). So the
schema that is inferred when the table is made carries the options, as metadata of its first column.
"""

import json
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

PREFIX = "option."
METADATA = "ringmq.options"


def is_of_table(options: Mapping[str, str]) -> bool:
    """Whether these are the properties of a table that is being made."""
    return any(name.lower() == "provider" for name in options)


def options_of_table(properties: Mapping[str, str]) -> dict[str, str]:
    """The options that the statement gives; LOCATION is one, it names the store."""
    options = {name[len(PREFIX) :]: text for name, text in properties.items() if name.lower().startswith(PREFIX)}
    return options | {name: text for name, text in properties.items() if name.lower() == "path"}


def schema_with_options(schema: pa.Schema, options: Mapping[str, str]) -> StructType:
    """The schema for the catalog to keep."""
    first, *others = from_arrow_schema(schema).fields
    carrier = StructField(first.name, first.dataType, first.nullable, {METADATA: json.dumps(dict(options))})
    return StructType([carrier, *others])


def options_in_schema(schema: StructType) -> dict[str, str]:
    """What `schema_with_options` has put there; nothing for any other schema."""
    texts = [field.metadata[METADATA] for field in schema.fields if METADATA in field.metadata]
    return dict(json.loads(texts[0])) if texts else {}
