"""What `msprobe run_ut` starts: python -m msprobe.precheck DUMP RESULT DETAILS ... (see --help)."""
import argparse
import sys

from msprobe.precheck.calls import Choice, printable
from msprobe.precheck.online import check_online
from msprobe.precheck.workers import check_all, check_overflows

SAID, INCOMPLETE = 3, 4  # exit status, told to the command: why it failed stands on the screen; it is done, and something was wrong with the input


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
    parser.add_argument("--online", metavar="STAMP", help="DUMP is the folder for results")
    a = parser.parse_args()
    devices = [int(d) for d in a.devices.split(",")]
    try:
        if a.overflow:
            return 0 if check_overflows(a.dump, a.workers, devices) else INCOMPLETE
        if a.online:
            choice = Choice(None, a.config)
            return check_online(a.config, choice, a.dump, a.online, a.workers, choice.folder_of_errors(a.error_data))
        choice = Choice(a.dump, a.config, a.filter)
        for line in choice.complaints:
            print("msprobe: " + printable(line), file=sys.stderr)
        check_all(a.dump, choice, a.result, a.details, workers=a.workers, devices=devices, error_data=choice.folder_of_errors(a.error_data), resume=a.resume)
        if choice.leaves_nothing:
            print("msprobe: " + printable("%s: its white_list and black_list leave no API of %s" % (a.config, a.dump)), file=sys.stderr)
        return INCOMPLETE if choice.complaints or choice.leaves_nothing else 0
    except OSError as e:
        print("msprobe: %s" % printable("%s: %s" % (e.filename, e.strerror) if e.filename and e.strerror else str(e)), file=sys.stderr)
        return SAID
    except (ValueError, LookupError) as e:
        print("msprobe: %s" % printable(str(e)), file=sys.stderr)
        return SAID
    except KeyboardInterrupt:
        print("msprobe: interrupted%s" % ("" if a.overflow or a.online else "; what is done is in %s, and -csv_path goes on from there" % a.result), file=sys.stderr)
        return SAID


if __name__ == "__main__":
    sys.exit(main())
