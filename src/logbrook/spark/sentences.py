"""One sentence out of what Spark says of an error, which is a page with the tracebacks of two languages in it."""

import re

# The last line of a Python traceback, or what a query was told to raise.
_OURS = re.compile(r"\blogbrook(?:\.\w+)+\.(\w+Error): ([^\n]*)")
_SQLSTATE = re.compile(r"\.?\s*SQLSTATE: \w{5}.*", re.DOTALL)
_POSITION = re.compile(r"SQLSTATE: \w{5}[;.]?\s*(?:\(|;\s*)?line (\d+),? pos (\d+)")
_WRAPPERS = (
    re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.DOTALL),
    re.compile(r"\[JOB_ABORTED\w*\] [^\n]*?: "),
    re.compile(r"Job aborted due to stage failure: Task .*?most recent failure: Lost task [^\n]*?\): ", re.DOTALL),
)
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
# What follows is about the query, and has in it whatever the query was told to raise.
_ABOUT_QUERY = "\n=== Streaming Query ==="
# Where the reader of a sentence has stopped reading.
_CHARACTERS_MAX = 600


def our_error(text: str) -> tuple[str, str] | None:
    """The name and the sentence of the last of Logbrook's errors in a text, None where there is none.

    The last is what the others have led to.
    """
    found = _OURS.findall(text.partition(_ABOUT_QUERY)[0])
    return (found[-1][0], _SQLSTATE.sub("", found[-1][1]).strip()) if found else None


def sentence_of(error: BaseException | str) -> str:
    """What has gone wrong, in one line: in our words if there are any, else in Spark's without their wrapping."""
    text = str(error).partition(_ABOUT_QUERY)[0].strip()
    if ours := our_error(text):
        return ours[1]
    for wrapper in _WRAPPERS:
        text = wrapper.sub("", text, count=1)
    text = _JAVA_CLASS.sub("", text.strip())
    text = _SQLSTATE.sub("", _CONDITION.sub("", text)).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Traceback (most recent call last)"):
        return lines[-1][:_CHARACTERS_MAX]
    return (lines[0] if lines else type(error).__name__)[:_CHARACTERS_MAX]


def position_in(error: BaseException | str) -> tuple[int, int] | None:
    """The line and the column of a query that Spark points at, counted from 1 and from 0."""
    found = _POSITION.search(str(error))
    return (int(found[1]), int(found[2])) if found else None
