"""A lab of two virtual machines behind a served switch (docs/how-to/virtual-lab.md)."""
