"""Lightrig: a pytest-native test harness for optical-circuit-switched ML fabrics."""
