"""The one kind of error that is shown to the user: a line that says what, where, and what to do."""


class ContestError(Exception):
    """Printed as it is, without a trace."""
