"""What the assignors raise."""


class AssignorError(ValueError):
    """An assignment cannot be computed from what was given.

    The message says where, what was found and what is allowed. The values are
    in `args` after the message, so that an alert need not parse text.
    """

    def __str__(self) -> str:
        """Give the message alone, without the values behind it."""
        return str(self.args[0]) if self.args else ""


class UnknownAssignorError(AssignorError):
    """No assignor has the name that was asked for."""


class PluginError(AssignorError):
    """A user's plug-in cannot be loaded, raised something, or gave what breaks a rule."""
