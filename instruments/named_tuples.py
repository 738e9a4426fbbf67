"""Named tuples that are made by the hundred in each event."""

new_tuple = tuple.__new__
"""Makes a named tuple of a sequence in less than half of the time that its class takes."""
