"""Our assignors against Kafka's own Java classes, on seeded random cases."""
