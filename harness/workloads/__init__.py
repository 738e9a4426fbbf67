"""Workloads: steps of training as graphs, and a simulator of them on fabrics. No wire, no clock."""
