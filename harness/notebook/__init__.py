"""A testbed that a person has open in a notebook: fixtures by name, restored at the end."""
