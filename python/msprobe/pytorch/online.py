"""Online run_ut in the training process: what it hears of the sender, which does the work (msprobe/online.h)."""
from msprobe import _core
from msprobe.core.config import wrong
from msprobe.core.log import log
from msprobe.core.signals import give_back

NAMES = ("not checked", "pass", "Warning", "error")  # in the order of msp_precheck_status


def open_sender(config, rank, program, forward_only):
    """True when it runs. What is wrong with the configuration is an exception: training has not begun."""
    where = config.online
    if program is None:
        log.error("online_run_ut: nothing is sent: the command msprobe was not found beside this interpreter or on the PATH")
        return False
    try:
        _core.online_open(config.dump_path, program, rank or 0, where["nfs_path"], where["host"], where["port"], where["tls_path"],
                          where["limit"], 1000 * where["wait"], 1000 * where["linger"], forward_only)
    except (OSError, ValueError) as e:
        raise wrong("online_run_ut: %s" % e) from None
    return True


def begin(folder, step):
    try:
        _core.online_begin(folder, step)
    except OSError as e:
        give_back(e)
        log.error("online_run_ut: step %d is not sent: %s", step, e)


def end():
    try:
        _core.online_end()
    except OSError as e:
        give_back(e)
        log.error("online_run_ut: %s", e)


def verdicts(counts):
    return ", ".join("%d %s" % (n, name) for name, n in zip(NAMES[1:] + NAMES[:1], counts["status"][1:] + counts["status"][:1]))


def losses(counts):
    """What was not sent, and why nothing goes over."""
    parts = []
    if counts["not_sent"]:
        parts.append("%d calls were not checked" % counts["not_sent"])
    if counts["left_out"]:
        parts.append("%d tensors were left out for want of room" % counts["left_out"])
    if counts["waited_ms"]:
        parts.append("training has waited %.1f s for the checker" % (counts["waited_ms"] / 1000))
    if counts["trouble"]:
        parts.append(counts["trouble"])
    return parts


def say(counts, level="info"):
    open_calls = counts["found"] - counts["answered"] - counts["not_sent"]
    text = "online_run_ut: %d calls checked (%s), %d on their way" % (counts["answered"], verdicts(counts), max(open_calls, 0))
    getattr(log, "warning" if losses(counts) else level)("%s", "; ".join([text] + losses(counts)))


def close(dump_path, linger):
    counts = _core.online_close()
    if counts is None:
        return
    say(counts)
    if counts["state"] in ("done", "refused") or not counts["lives"]:
        log.info("online_run_ut: results: %s/step*/rank*/accuracy_checking_result_*.csv", dump_path)
    else:
        log.info("online_run_ut: what is on its way goes on without this process, until %d s pass without an answer; results: "
                 "%s/step*/rank*/accuracy_checking_result_*.csv", linger, dump_path)
