"""Long tool results are cut in the middle, on word borders, so that the model keeps the beginning and the end."""

from __future__ import annotations

import re

WORDS_KEPT = 1000
"""Words of a result that the model is given; half from each end."""

CHARS_KEPT = 60_000
"""The same limit for text that has few spaces (one long line of minified code), in characters."""

_WORD = re.compile(r"\S+")


def cut_middle(text: str, *, words: int = WORDS_KEPT, chars: int = CHARS_KEPT, hint: str = "") -> tuple[str, int]:
    """Return the text, cut in the middle if it has more than `words` words or `chars` characters, and the words cut.

    A cut text keeps its first and last halves and says between them how much is missing and, with `hint`, how to
    read on. Whole characters always: the cut is between code points, never inside one.
    """
    spans = [m.span() for m in _WORD.finditer(text)]
    if len(spans) > words:
        half = words // 2
        head, tail = text[:spans[half - 1][1]], text[spans[len(spans) - half][0]:]
    else:
        head, tail = text, ""
    if len(head) + len(tail) > chars:
        head, tail = text[:chars // 2], text[-(chars // 2):]
    elif not tail:
        return text, 0
    missing = len(_WORD.findall(text)) - len(_WORD.findall(head)) - len(_WORD.findall(tail))
    missing = max(missing, 1)
    note = f"[… {missing:,} words cut here" + (f"; {hint}" if hint else "") + " …]"
    return f"{head}\n\n{note}\n\n{tail}", missing
