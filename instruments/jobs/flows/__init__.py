"""Traffic model: links, flows that share them max-min fairly, collectives in steps.

A `Network` has directed edges with capacities; a `Router` finds routes through it; `duration` is
the time of a schedule of flows, such as `collectives.ring_all_reduce`. Formulas that
check the model stand beside the claims (`suites/claims/closed_forms.py`).
"""
