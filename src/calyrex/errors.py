"""What a user can cause and mend."""


class CalyrexError(Exception):
    """A mistake the user can mend: one line that says what was expected, what was given and the way out."""
