"""Run every benchmark: `python -m benchmarks [NAME ...]`."""

import sys

from benchmarks import journal, reconfigurations

ALL = {"reconfigurations": reconfigurations.main, "journal": journal.main}

for name in sys.argv[1:] or ALL:
    print(f"== {name}")
    ALL[name]()
