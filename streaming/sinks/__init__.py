"""What leaves the house beside the tables: a topic of deltas and generations."""
