"""What a user of the command line can mend: shown as a line on stderr, exit code 2."""


class UsageError(ValueError):
    """The command was given something that it cannot use."""


class TablesError(UsageError):
    """A table cannot be read; the message says which, where, and what to do."""
