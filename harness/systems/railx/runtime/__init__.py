"""RailX acting on a bench: packets led by rail."""
