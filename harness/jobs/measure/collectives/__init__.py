"""Collectives: how long they take and what of the line rate they use, by size and topology."""
