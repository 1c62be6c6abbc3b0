"""Groups that Kafka leads: what it decided, and what it should have."""
