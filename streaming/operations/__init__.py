"""For those who run the job: metrics, health, progress, and what does not fit at a start."""
