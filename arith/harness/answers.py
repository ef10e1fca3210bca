"""The answers of a language model, kept in a file that grows by a line with each of them.

So a process that is killed loses no answer, and nothing is asked twice.
"""

import json
import os
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import Corrupt, UsageError
from tape_arith.arith.files import append_line, open_file, parse_json


class Answers:
    """Answers by problem, read from the lines of a file after the first one, `request`.

    Raises UsageError if the file has another request; Corrupt if it is damaged.
    """

    def __init__(self, path: Path, request: dict[str, Any]) -> None:
        self._path, self._request, self._known = path, request, dict[str, str]()
        if not path.exists():
            return
        first, *lines = _whole_lines(path) or [request]
        for key in first | request:
            if first.get(key) != request.get(key):
                raise UsageError(
                    f"{path} answers another request ({key} {first.get(key)}, not "
                    f"{request.get(key)}): choose another --out, or --fresh to ask again"
                )
        self._known = {line["problem"]: line["answer"] for line in lines}

    def __contains__(self, problem: str) -> bool:
        return problem in self._known

    def __getitem__(self, problem: str) -> str:
        return self._known[problem]

    def add(self, problem: str, answer: str) -> None:
        """Keep an answer, unless there is one. Raises Failure if the file cannot be written."""
        if problem not in self:
            if not self._path.exists():
                append_line(self._path, json.dumps(self._request))
            append_line(self._path, json.dumps({"problem": problem, "answer": answer}))
            self._known[problem] = answer


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """Return the request and the answers; cut off a line that was never finished."""
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
