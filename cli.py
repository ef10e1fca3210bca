"""Run the command line: load one command from each file of arith/commands, report its errors.

Slow packages (torch, pandas) are imported inside the commands that need them.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from shutil import get_terminal_size
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from tape_arith.arith.commands.option import PANELS as OPTION_PANELS
from tape_arith.arith.documents import must_be
from tape_arith.arith.errors import (
    EXIT_AGAIN,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Failure,
    UsageError,
    is_out_of_memory,
)
from tape_arith.arith.machine import commit, own_version
from tape_arith.arith.runs.config import without_exponent
from tape_arith.arith.stopping import install_handler
from tape_arith.arith.terminal import escape_control, protect_streams, silence_drawing

PANELS = {
    "From problems to grids": ("generate", "train", "score", "ask", "run", "sweep", "status"),
    "Results": ("heatmap", "leaderboard", "tasks", "report", "curves", "export"),
    "Results and models of others": ("pack", "validate", "harness"),
    "Inside trained runs": ("study",),
    "Encodings, tasks, this machine": ("list", "check", "doctor", "bench"),
}
"""The commands under each title of `--help`; each is a file of arith/commands."""

_LIMITS = re.compile(r" +\[[\d.]*(<=?)?x[<>]=?[\d.]+\]|; [\d.]*(<=?)?x[<>]=?[\d.]+(?=\])")
"""The limits of a number, as typer adds them to its help."""
_TYPE = re.compile(r" <([^<>]+)>$")
_WORDS = {"path": "PATH", "str": "TEXT", "dir": "DIR"}
"""What stands for a value of a type where an option names none of its own."""
_NARROW, _WIDEST_HELP = 60, 100
"""Columns of a terminal below which a help has one column, and the most that it fills."""


class _PlainHelp:
    """Help in two columns; in a narrow terminal, descriptions are below options.

    Rich's help has six columns, which leave descriptions 20 letters of 80.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        columns = get_terminal_size().columns
        formatter.width = max(20, min(columns, _WIDEST_HELP) - 2)
        if columns < _NARROW:
            formatter.write_dl = partial(formatter.write_dl, col_max=4)
        super().format_help(ctx, formatter)  # type: ignore[misc]


class _Group(_PlainHelp, TyperGroup):
    """The commands, each under its title."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, names in PANELS.items():
            with formatter.section(title):
                helps = [str(self.commands[name].help).partition("\n\n")[0] for name in names]
                texts = [" ".join(text.split()) for text in helps]
                padded = (name.ljust(width) for name in names)
                formatter.write_dl(list(zip(padded, texts, strict=True)))


app = typer.Typer(
    cls=_Group,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Length generalization in arithmetic: generate problems, train decoders that differ only "
    "in their positional encoding, score exact match, draw comparison heatmaps.",
)


class _Command(_PlainHelp, TyperCommand):
    """A command that takes 2e3 as a whole number, and refuses an option given twice.

    One of the two values would be ignored.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List arguments, then options under their panels; limits of numbers are in errors."""
        by_title: dict[str, list[tuple[str, str]]] = {
            title: [] for title in ("Arguments", *OPTION_PANELS, "Options")
        }
        for param in self.get_params(ctx):
            is_option = param.param_type_name == "option"
            title = (
                (getattr(param, "rich_help_panel", None) or "Options") if is_option else "Arguments"
            )
            if record := param.get_help_record(ctx):
                name, text = record
                kind = _TYPE.search(name)
                if kind:  # an argument is called by its name alone
                    word = f" {_WORDS.get(kind[1], kind[1])}" if is_option else ""
                    name = name.replace(kind[0], word)
                by_title[title].append((name, _LIMITS.sub("", text)))
        width = max(len(name) for rows in by_title.values() for name, _ in rows)
        for title, rows in by_title.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = list(self._without_exponents(args))
        _, words, order = self.make_parser(ctx).parse_args(args=list(args))
        if words and not ctx.resilient_parsing and not any(param.is_eager for param in order):
            self._refuse_words(words, str(ctx.info_name))
        try:
            rest = super().parse_args(ctx, list(args))
        except typer.BadParameter as error:
            if error.param is None or not isinstance(error.__cause__, ValidationError):
                raise
            raise UsageError(f"{error.param.opts[0]} {must_be(error.__cause__)}") from None
        for param in order:
            several = getattr(param, "is_flag", False) or getattr(param, "multiple", False)
            if not several and param.nargs == 1 and order.count(param) > 1:
                raise UsageError(f"{param.opts[0]} takes one value and is given twice")
        return rest

    def _without_exponents(self, args: Sequence[str]) -> Iterator[str]:
        """Yield the arguments, whole numbers of options without exponent."""
        counts = {
            name
            for param in self.params
            for name in param.opts
            if getattr(getattr(param, "type_descriptor", None), "annotation", None) is int
        }
        for before, word in zip(["", *args], args, strict=False):
            name, equals, value = word.partition("=")
            if before in counts:
                yield without_exponent(word)
            elif name in counts and equals:
                yield f"{name}={without_exponent(value)}"
            else:
                yield word

    def _refuse_words(self, words: Sequence[str], command: str) -> None:
        """Raise UsageError for encodings without --pe, if the command takes no other words."""
        options = [name for param in self.params for name in param.opts]
        if "--pe" in options and all(param.param_type_name == "option" for param in self.params):
            raise UsageError(f"{command} takes encodings as an option: --pe {','.join(words)}")


for _names in PANELS.values():
    for _name in _names:
        _module = import_module(f"tape_arith.arith.commands.{_name}")
        _example = f"Example: {_module.EXAMPLE}"
        app.command(_name, cls=_Command, epilog=_example)(_module.command)


def _print_version(context: typer.Context, requested: bool) -> None:
    if requested and not context.resilient_parsing:  # not while a shell completes the line
        built_from = commit()
        print(f"tape-arith {own_version()}" + (f" ({built_from})" if built_from else ""))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print version and commit, and exit.", callback=_print_version
        ),
    ] = False,
) -> None:
    """Take the options that precede a command."""


@cache
def all_commands() -> TyperGroup:
    """Return all commands, which take longer to build than most calls of one."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group


class _Interrupted(BaseException):
    """Ctrl-C or a preemption that the command does not handle.

    It is no KeyboardInterrupt, because typer would exit with 1 for that.
    """


_interruptions: list[_Interrupted] = []
"""What was raised into the running command, wherever it stood."""


def _interrupt(number: int, *_: object) -> None:
    if _interruptions:
        return _on_the_way_out(number)
    _interruptions.append(_Interrupted(EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_AGAIN))
    raise _interruptions[0]


def _on_the_way_out(number: int, *_: object) -> None:
    """Let what tidies up end, the libraries' part of it too: only Ctrl-C is quicker."""
    if number == signal.SIGINT:
        os._exit(EXIT_INTERRUPTED)


def _run(arguments: list[str]) -> int | None:
    """Run a command; return its exit code.

    Raises _Interrupted for every error after an interruption: one that arrives inside a lock may
    leave it as a RuntimeError of the library that holds it.
    """
    try:
        code: int | None = all_commands()(arguments, standalone_mode=False)
        return code
    except Exception as error:
        if _interruptions:
            raise _interruptions[0] from error
        raise


def _flush_stdout() -> None:
    """Flush stdout. After a Failure, Python does not try again when it exits."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise Failure(f"cannot write to stdout: {error.strerror or error}") from error


def _failed(error: Exception) -> int:
    """Print an error, after what stdout still holds; return its exit code."""
    try:
        _flush_stdout()
    except Failure as unsaid:
        error = error if isinstance(error, Failure) else unsaid
    if not isinstance(error.__cause__, BrokenPipeError):  # no message if the reader closed the pipe
        print(f"tape-arith: {_one_line(error)}", file=sys.stderr)
    return getattr(error, "exit_code", EXIT_FAILED)


def _one_line(error: Exception) -> str:
    """Return an error's message: with the option for typer's errors, with the file for OSError."""
    if isinstance(error, OSError) and error.strerror:
        return escape_control(f"{error.filename or 'input or output failed'}: {error.strerror}")
    message = getattr(error, "format_message", lambda: str(error))()
    return escape_control(" ".join(message.split()))


def _arguments() -> list[str]:
    """Return the arguments. Raises UsageError if one is not UTF-8, which documents cannot hold."""
    for word in sys.argv[1:]:
        if not word.isascii() and any("\ud800" <= character <= "\udfff" for character in word):
            shown = os.fsencode(word).decode("utf-8", "backslashreplace")
            raise UsageError(f"{shown} is not UTF-8: rename it, or go into the folder")
    return sys.argv[1:] or ["--help"]


def _exit_code() -> int | None:
    """Run the command of this process; turn an error into one line and an exit code."""
    try:
        code = _run(_arguments())
        _flush_stdout()
        return code
    except (UsageError, typer.TyperException) as error:
        from tape_arith.arith.commands.hints import hint

        print(f"tape-arith: {hint(error) or _one_line(error)}", file=sys.stderr)
        return EXIT_USAGE
    except (Failure, OSError) as error:
        return _failed(error)
    except (MemoryError, ImportError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return _failed(Failure("out of memory: free some, or run this where there is more"))


def main() -> None:
    """Run the command line and exit; a signal is one line and an exit code too."""
    protect_streams()
    silence_drawing()
    _interruptions.clear()
    install_handler(_interrupt)
    try:
        sys.exit(_exit_code())
    except _Interrupted as caught:
        print(
            "tape-arith: interrupted: what is finished is kept, nothing is half-written",
            file=sys.stderr,
        )
        sys.exit(caught.args[0])
    finally:
        install_handler(_on_the_way_out)


if __name__ == "__main__":
    main()
