"""Servers whose NIC ports are cabled to a fabric."""
