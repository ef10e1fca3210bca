"""What commands say, for tables of (command line, sentence); "..." stands for what may change."""

import re
import shlex

from tests.helpers.tiny_runs import call, settings


def argv(line: str) -> list[str]:
    """Split a command line; TINY stands for the options of the tiny preset."""
    words = (settings() if word == "TINY" else [word] for word in shlex.split(line))
    return [word for several in words for word in several]


def assert_says(line: str, code: int, sentence: str) -> None:
    """Run a command line, which must exit with `code` and write `sentence` as a line of stderr.

    A command that fails says it last, and prints nothing.
    """
    result = call(*argv(line))
    assert result.code == code, (result.code, result.err)
    lines = result.err.splitlines()
    if code:
        assert result.out == "" and lines[-1].startswith("tape-arith: "), result
        lines = [lines[-1].removeprefix("tape-arith: ")]
    else:
        lines = [text.removeprefix("note: ") for text in lines if text.startswith("note: ")]
    assert any(is_of(text, sentence) for text in lines), "\n".join(lines)


def is_of(text: str, sentence: str) -> bool:
    """Whether a text is the sentence, whole."""
    return bool(re.fullmatch(".+".join(map(re.escape, sentence.split("..."))), text, re.DOTALL))
