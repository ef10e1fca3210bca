"""The answers of a language model, kept in a file that grows by a line with each of them.

So a process that is killed loses no answer, and nothing is asked twice.
"""

import json
import os
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import Corrupt, UsageError
from tape_arith.arith.files import append_line, open_file, parse_json


class Answers(dict[str, str]):
    """Answers by problem, read from the lines of a file after the first one, `request`.

    Raises UsageError if the file has another request; Corrupt if it is damaged.
    """

    def __init__(self, path: Path, request: dict[str, Any]) -> None:
        self._path, self._request = path, request
        first, *lines = _whole_lines(path) or [request]
        for key in first | request:
            if first.get(key) != request.get(key):
                raise UsageError(
                    f"{path} answers another request ({key} {first.get(key)}, not "
                    f"{request.get(key)}): choose another --out, or --fresh to ask again"
                )
        super().__init__((line["problem"], line["answer"]) for line in lines)

    def add(self, problem: str, answer: str) -> None:
        """Keep an answer, unless there is one. Raises Failure if the file cannot be written."""
        if problem not in self:
            if not self._path.exists():
                append_line(self._path, json.dumps(self._request))
            append_line(self._path, json.dumps({"problem": problem, "answer": answer}))
            self[problem] = answer


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """Return the request and the answers, if any; cut off a line that was never finished."""
    if not path.exists():
        return []
    with open_file(path) as file:
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    try:
        lines: list[dict[str, Any]] = list(map(parse_json, whole.decode().splitlines()))
        if any(line.keys() != {"problem", "answer"} for line in lines[1:]):
            raise ValueError("a line has no problem or no answer")
    except (ValueError, AttributeError) as error:
        raise Corrupt(f"{path} is corrupt: {error}", "--fresh asks again") from error
    return lines
