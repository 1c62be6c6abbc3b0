"""The Spark job: sources, events, group state, deltas, tables, alerts."""

from streaming.garbage import give_memory_back_soon

# Here, because it must come before the first import of deltalake, wherever that is.
give_memory_back_soon()
