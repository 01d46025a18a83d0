"""What the log says of a run: some things once, and at the program's end what was recorded, or why nothing was."""

import multiprocessing

from msprobe.core import older
from msprobe.core.log import log


class Summary:
    def __init__(self, config):
        self._config = config
        self._said = set()
        self._starts = 0
        self._steps = None  # the first one and the last one in which start() was called
        self._step_ran = False
        self.saves = 0  # calls of save()
        self.records = 0
        self.is_other_rank = False  # than those that the key rank selects, which was told

    def say_once(self, key, text, *values, say=log.warning):
        if key not in self._said:
            self._said.add(key)
            say(text, *values)

    def note_start(self, step):
        self._starts += 1
        first = step if self._steps is None else self._steps[0]
        self._steps = (first, step)
        self._step_ran = self._step_ran or step in self._config.step

    def say_at_the_end(self, called, folder, failure, overflows):
        """called: names that were; folder: of this process in each step; failure: why recording ended before its time, None: it did not;
        overflows: how many, and the first one's name."""
        if self._config.task == "overflow_check" and folder and not failure:
            self._say_overflows(overflows)
        elif self.records and not failure:
            folders = older.steps_of(self._config.dump_path, folder)
            log.info("recorded %d call%s, %d step%s, %s in %s", self.records, "" if self.records == 1 else "s", len(folders), "" if len(folders) == 1 else "s",
                     older.size_text(folders), self._config.dump_path)
        elif not self.records and not self.is_other_rank and not self._is_worker():
            log.error("nothing was recorded: %s", "recording could not go on: %s" % failure if failure else self._why_nothing(called))

    def _say_overflows(self, overflows):
        count, first = overflows
        if count:
            log.warning("%d overflow(s); the first one in %s", count, first)
        else:
            log.info("no overflow in step %d to %d", *self._steps)

    def _is_worker(self):
        """A process that only helps, such as a dataset's, which has run the top of the script, where the debugger is built."""
        return multiprocessing.parent_process() is not None and self._starts == 0 and self.saves == 0

    def _why_nothing(self, called):
        config = self._config
        if config.level == "debug":
            return "save() was never called" if self.saves == 0 else "step selects %s, and save() was called in none of them" % config.step
        if self._starts == 0:
            return "start() was never called"
        if config.dump_enable is False:
            return "dump_enable is false"
        if config.step and not self._step_ran:
            return "step selects %s, and the steps that ran are %d to %d" % (config.step, *self._steps)
        for key, value in (("list", config.list), ("scope", config.scope), ("data_mode", config.data_mode if config.data_mode != ["all"] else [])):
            if value:
                return "%s selects %s; names that were called: %s" % (key, value, called)
        return "nothing that is recorded at level %s was called between start() and stop()" % config.level
