"""A service that keeps a fabric in its wanted state: generic, with a layout for each system.

A wanted state (`wanted`, of `jobs`) and the state seen (`health`) lead to circuits on switches; the
layout of a system says which. `orchestrator` has the loop and the journal, `switch_sessions` the
wires, `requests` what may be asked.
"""
