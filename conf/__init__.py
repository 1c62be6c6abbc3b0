"""The settings: a validated model, and its defaults in TOML."""
