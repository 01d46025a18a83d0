"""How much memory a call takes when it is run again, and how much there is."""

LARGE = 1 << 25  # bytes of a call's tensors in float64 from which on calls are run one at a time
ROOM = 13        # times these bytes are needed while a call is measured: inputs, results, references, their elements' errors


def size_of(value):
    """Bytes that the tensors of a record take in float64."""
    if isinstance(value, list):
        return sum(size_of(v) for v in value)
    if isinstance(value, dict):
        shape = value.get("shape")
        if isinstance(shape, list):
            n = 8
            for d in shape:
                n *= d if isinstance(d, int) else 1
            return max(n, 0)
        return sum(size_of(v) for v in value.values())
    return 0


def memory_left():
    """Bytes that a process may take now."""
    try:
        with open("/proc/meminfo") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return 1 << 34


def too_large(size):
    """Why a call of this size is not run, or None."""
    if size * ROOM < memory_left():
        return None
    return "too large: it takes about %d GiB to run it again" % ((size * ROOM >> 30) + 1)
