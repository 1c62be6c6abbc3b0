"""Great Expectations: the suites as JSON, and one entry, a frame in and results out.

Here "checkpoint" always means Great Expectations' word; Spark's directory is
`checkpoint_location`.
"""
