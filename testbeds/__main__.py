"""Writes a JSON Schema: `python -m testbeds > testbeds/schema.json`.

That of a baselines file: `python -m testbeds baselines > testbeds/baselines.schema.json`.
"""

import json
import sys

from testbeds.baselines import baselines_schema
from testbeds.schema import json_schema

if __name__ == "__main__":
    schema = baselines_schema() if sys.argv[1:] == ["baselines"] else json_schema()
    sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
