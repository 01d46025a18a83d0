"""What `msprobe run_ut` starts: python -m msprobe.precheck DUMP RESULT DETAILS ... (see --help)."""
import argparse
import sys

from msprobe.precheck.calls import Choice
from msprobe.precheck.check import overflow_lines
from msprobe.precheck.workers import check_all


def main():
    parser = argparse.ArgumentParser(prog="python -m msprobe.precheck")
    parser.add_argument("dump")
    parser.add_argument("result", nargs="?")
    parser.add_argument("details", nargs="?")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--devices", default="0")
    parser.add_argument("--filter", action="store_true")
    parser.add_argument("--config")
    parser.add_argument("--error-data")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--overflow", action="store_true")
    a = parser.parse_args()
    devices = [int(d) for d in a.devices.split(",")]
    try:
        if a.overflow:
            for line in overflow_lines(a.dump, devices[0]):
                print(line, flush=True)
            return 0
        choice = Choice(a.dump, a.config, a.filter)
        return check_all(a.dump, choice, a.result, a.details, workers=a.workers, devices=devices,
                         error_data=a.error_data, resume=a.resume)
    except (OSError, ValueError, LookupError) as e:
        print("msprobe: %s" % e, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
