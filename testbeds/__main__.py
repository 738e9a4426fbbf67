"""Writes the JSON Schema: `python -m testbeds > testbeds/schema.json`."""

import json
import sys

from testbeds.schema import json_schema

if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
