"""Figures of papers: declared as data, computed or read from runs, drawn beside what is printed."""
