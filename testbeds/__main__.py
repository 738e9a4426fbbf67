"""Write a JSON Schema: `python -m testbeds > testbeds/schema.json`.

That of a baselines file: `python -m testbeds baselines > testbeds/baselines.schema.json`, that of
a references file: `python -m testbeds references > testbeds/references.schema.json`, that of an
exceptions file: `python -m testbeds exceptions > testbeds/exceptions.schema.json`.
"""

import json
import sys

from lightrig.testbeds.baselines import baselines_schema
from lightrig.testbeds.exceptions_document import exceptions_schema
from lightrig.testbeds.references import references_schema
from lightrig.testbeds.schema import json_schema

if __name__ == "__main__":
    schemas = {
        "baselines": baselines_schema,
        "exceptions": exceptions_schema,
        "references": references_schema,
    }
    schema = schemas.get("".join(sys.argv[1:]), json_schema)()
    sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
