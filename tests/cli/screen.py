"""The summary on the screen, for tests."""


def spoken(text):
    """The summary without what the verdict's measurement says in its own words and numbers: its sentence becomes
    VERDICT where it is more than identity, and how it came to that is left out."""
    out, skip = [], False
    for line in text.splitlines(keepends=True):
        name = line[2:16].strip() if line.startswith("  ") else ""
        if name or not line.startswith(" " * 16):
            skip = name in ("Judged", "Confidence", "Because", "The error", "Not told", "Then", "Verdict")
            if name == "Verdict":
                out.append("  Verdict       %s\n" % (line[16:].strip() if "Identical" in line or "checksums" in line else line[16:].split(": ")[0]))
        if not skip:
            out.append(line)
    return "".join(out)
