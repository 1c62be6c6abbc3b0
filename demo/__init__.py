"""The demo on a real Kafka: a broker, groups that never rest, and the job, live (`python -m demo`).

Run from a checkout only: the broker and the members are those of the live tests.
"""
