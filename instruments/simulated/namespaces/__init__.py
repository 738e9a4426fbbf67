"""Kernel links between namespaces that follow the light of a simulated switch."""
