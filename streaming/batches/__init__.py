"""A micro-batch from its records to its commit, in the driver's process or on executors."""
