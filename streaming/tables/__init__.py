"""The Delta tables: the log, what is published from it, snapshots, upkeep, and who may write."""
