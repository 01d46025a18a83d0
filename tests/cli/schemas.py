"""What --json printed, against docs/schema."""
import json
import os

import pytest

from conftest import ROOT


def check(text, name):
    """Parse text and validate it against docs/schema/<name>.schema.json; the value."""
    jsonschema = pytest.importorskip("jsonschema")
    with open(os.path.join(ROOT, "docs/schema", name + ".schema.json")) as f:
        schema = json.load(f)
    value = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(value)
    return value
