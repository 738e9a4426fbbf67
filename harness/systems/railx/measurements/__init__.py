"""Measurements that only RailX's testbeds need."""
