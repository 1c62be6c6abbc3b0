"""Where records come from: files, Delta tables, Kafka, and what the job tells itself."""
