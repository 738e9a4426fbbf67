"""MixNet acting on a bench: all-to-alls by its routes."""
