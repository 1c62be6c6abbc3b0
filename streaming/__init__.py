"""The Spark job: sources, events, group state, deltas, tables, alerts."""
