"""Published values of papers, compared with measurements of this harness."""
