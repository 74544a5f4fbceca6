"""Text from outside, made safe to show on a terminal or in a line of a log."""


def printable(text: str) -> str:
    """`text` with every character that does not print (controls, escapes, bidi marks, line ends) as a `\\x1b`.

    What a stranger chose can then neither begin a new line nor move the cursor. A backslash is doubled, so that two
    different texts never look alike.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode("ascii")
