"""An exported folder, written whole or not at all, and the templates of its files."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tape_arith.arith.documents import read_content, write_document
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import remove, remove_stale_temporaries, temporary_path

_MARK = "tape-arith.json"
"""The file of an exported folder that names its run or problems."""
_KIND = "exported run"
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render(template: str, **values: Any) -> str:
    """Fill in the template `templates/TEMPLATE.jinja` with `values`."""
    return _TEMPLATES.get_template(f"{template}.jinja").render(values)


def is_exported(out: Path, facts: dict[str, Any]) -> bool:
    """Tell whether `out` holds the export of these `facts`."""
    with suppress(Failure):
        return read_content(out / _MARK, _KIND) == facts
    return False


@contextmanager
def exported(out: Path, facts: dict[str, Any], fresh: bool) -> Iterator[Path]:
    """Yield an empty folder that replaces `out` when the block ends without an error.

    Writes `facts` to its file _MARK. Raises UsageError if `out` holds anything but an export that
    `fresh` replaces; Failure if the disk refuses.
    """
    if out.is_symlink():
        raise UsageError(f"{out} is a link, which the export would replace: name its folder itself")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        try:
            read_content(out / _MARK, _KIND)  # a folder that only has such a file is somebody's own
        except Failure:
            reason = "exists and is no export of tape-arith: choose another --out"
            raise UsageError(f"{out} {reason}") from None
        if not fresh:
            raise UsageError(f"{out} exists: --fresh writes it again, or choose another --out")
    temporary, replaced = temporary_path(out), temporary_path(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(out.parent, out.name)
        temporary.mkdir()
        yield temporary
        write_document(temporary / _MARK, facts, _KIND)
        if out.exists():
            out.rename(replaced)
        temporary.rename(out)
    except OSError as error:
        raise Failure(f"cannot write {out}: {error.strerror or error}") from error
    except Failure as error:  # people know the final name, not the temporary one
        raise Failure(str(error).replace(str(temporary), str(out))) from error
    finally:
        with suppress(OSError):
            if replaced.exists() and not out.exists():
                replaced.rename(out)
            remove(temporary)
            remove(replaced)
