"""Decodes the encodings whose bytes are all ASCII, so that they pass for UTF-8."""

# Escape sequences that begin Japanese and Korean text in mail (RFC 1468, RFC 1557).
_CODECS_OF_ESCAPES = {
    "\x1b$@": "iso2022_jp_ext",
    "\x1b$B": "iso2022_jp_ext",
    "\x1b$(D": "iso2022_jp_ext",
    "\x1b$)C": "iso2022_kr",
}


def decode_escapes(text: str) -> str:
    r"""Returns a text, decoded if it is in ISO-2022-JP or ISO-2022-KR.

    Raises:
        UnicodeError: if such a text is damaged.

    Example:
        >>> decode_escapes("\x1b$B9A\x1b(B"), decode_escapes("harbour")
        ('港', 'harbour')
    """
    if "\x1b$" not in text or not text.isascii():
        return text
    for escape, codec in _CODECS_OF_ESCAPES.items():
        if escape in text:
            return text.encode().decode(codec)
    return text
