"""Programs that run on servers: sent there as source, with the modules of this folder they import.

A module here imports the standard library of Python 3.8, or that and the library whose
collectives it runs, and other modules of this folder: a server has no Lightrig.
"""
