"""A report as JSON, and back. ``python -m ambidex.report.json_ docs/report-schema.json`` writes the schema."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ambidex.core.report import FORMAT, Report
from ambidex.errors import InputError

#: JSON has no word for these numbers, so they are written as strings
NOT_FINITE = ["NaN", "Infinity", "-Infinity"]


def dumps(report: Report) -> str:
    """The report as JSON text (format 1); numbers that are not finite become the strings of ``NOT_FINITE``."""
    data = _plain(report.model_dump())
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    # a file name that is no valid text holds lone surrogates; JSON can spell them, UTF-8 cannot
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


def _plain(value: Any) -> Any:
    """What JSON knows: ``environment`` may hold anything, and no number may be NaN or infinite."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return NOT_FINITE[0] if math.isnan(value) else NOT_FINITE[1 if value > 0 else 2]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def loads(text: str) -> Report:
    """Read what :func:`dumps` wrote; :class:`InputError` says what is wrong with anything else."""
    again = "Write it again with --json FILE"
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise InputError("the report is not JSON", place, again) from error
    except (ValueError, RecursionError) as error:  # an endless number, nesting without end
        raise InputError("the report is not JSON that can be read", str(error), again) from error
    if not isinstance(data, dict):
        raise InputError(f"the report is a JSON {type(data).__name__}", "an object is expected", again)
    if "format" not in data:
        raise InputError("the file is no ambidex report", "it does not say its format", again)
    if type(data["format"]) is not int or data["format"] != FORMAT:
        shown = repr(data["format"])[:40]
        raise InputError(
            f"the report has format {shown}", f"this version reads format {FORMAT}", "Use the ambidex that wrote it"
        )
    try:
        return Report.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "report"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise InputError(f"the report is damaged at '{where}'", first["msg"] + more, again) from error


class _Schema(GenerateJsonSchema):
    """A float may also be one of the three strings."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": NOT_FINITE}]}


def schema() -> dict[str, Any]:
    """The JSON schema of what :func:`dumps` writes."""
    body = Report.model_json_schema(schema_generator=_Schema, mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"ambidex report, format {FORMAT}"}
    return head | {key: value for key, value in body.items() if key != "title"}


def main(arguments: list[str]) -> int:
    """Write the schema to the file named, or to standard output."""
    text = json.dumps(schema(), indent=2) + "\n"
    if arguments:
        Path(arguments[0]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
