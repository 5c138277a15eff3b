"""Options of tables in Spark's catalog (`CREATE TABLE ... USING ringmq OPTIONS (...)`).

When Spark creates such a table, its options are among the catalog's own properties and again as `option.NAME`. When
Spark 4.3 reads the table, a Python source gets no options at all, only the schema (PythonTable drops the properties).
So the schema that is inferred at creation carries the options, as metadata of its first column.
"""

import json
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

PREFIX = "option."
METADATA = "ringmq.options"


def is_of_table(options: Mapping[str, str]) -> bool:
    """True if these are the properties of a table in creation."""
    return any(name.lower() == "provider" for name in options)


def options_of_table(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the statement. LOCATION is among them and names the store."""
    options = {name[len(PREFIX) :]: text for name, text in properties.items() if name.lower().startswith(PREFIX)}
    return options | {name: text for name, text in properties.items() if name.lower() == "path"}


def schema_with_options(schema: pa.Schema, options: Mapping[str, str]) -> StructType:
    """Return the schema for the catalog, with the options."""
    first, *others = from_arrow_schema(schema).fields
    carrier = StructField(first.name, first.dataType, first.nullable, {METADATA: json.dumps(dict(options))})
    return StructType([carrier, *others])


def options_in_schema(schema: StructType) -> dict[str, str]:
    """Return the options that `schema_with_options` stored, none for any other schema."""
    texts = [field.metadata[METADATA] for field in schema.fields if METADATA in field.metadata]
    return dict(json.loads(texts[0])) if texts else {}
