"""Text from files and folders as a terminal may get it."""

import re

# Control characters but tab and line break, what turns the direction of text, what shows nothing,
# and halves of characters, which cannot be written at all.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def plain(text: str) -> str:
    r"""`text` with what a terminal would obey, or cannot show, written out.

    >>> plain("\x1b[31mred")
    '\\x1b[31mred'
    """
    return _UNSHOWN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
