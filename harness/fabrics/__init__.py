"""The control planes of published systems: demand in, plan out. None is built yet."""
