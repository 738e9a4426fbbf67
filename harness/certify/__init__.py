"""Certification of optical switches: requirements, the clauses that try them, and the sheet."""
