"""config.json on MindSpore: the shared reader, and what holds for this framework only."""

import os
import re

import mindspore

from msprobe.core.config import API_NAME, MODULE_NAME, Config, choice, given, whole, wrong
from msprobe.core.log import log

PERT_MODES = ("improve_precision", "add_noise", "no_change", "bit_noise", "change_value")
TASKS = ("statistics", "tensor", "overflow_check", "structure", "free_benchmark")
STATIC_TASKS = ("statistics", "tensor", "overflow_check")
# keys that do nothing here, and the values with which they ask for nothing
PYTORCH_ONLY = dict.fromkeys(("seed", "is_deterministic", "acl_config", "rm_dropout", "backward_input", "online_run_ut", "nfs_path", "host", "port"),
                             (None, False, "", [], -1))
PYTORCH_ONLY.update(compiled=(None, "", "skip"), api_list=(None, "", "default"), preheat_step=(None, "", 15), max_sample=(None, "", 20))
REGEX = re.compile(r"^name-regex\((.*)\)$", re.DOTALL)


def is_static():
    return mindspore.get_context("mode") == mindspore.GRAPH_MODE


def device():
    return str(mindspore.get_context("device_target"))


class Options(Config):
    """What to record. static: of a graph that MindSpore compiles and runs as a whole."""

    def _check_together(self):
        self.static = is_static()
        if self.task not in TASKS:
            raise wrong('task is "%s"; on MindSpore there are: %s' % (self.task, ", ".join(TASKS)))
        if self.enable_dataloader:
            raise wrong("enable_dataloader is true; it is for PyTorch only, must be false on MindSpore")
        if self.static:
            self._check_static()
        else:
            self._check_dynamic()
        self._check_pairs()
        if self.scope and self.task == "free_benchmark":
            raise wrong("scope is %r; with task free_benchmark it is for PyTorch only: use list" % (self.scope,))

    def _check_dynamic(self):
        if self.task == "structure" and self.level not in ("L0", "mix"):
            self.level = "mix"
        if self.level == "debug" and self.task not in ("statistics", "tensor"):
            raise wrong('task is "%s"; level debug goes with tasks statistics and tensor' % self.task)
        if self.task == "free_benchmark" and self.level != "L1":
            raise wrong('level is "%s"; task free_benchmark works at level L1' % self.level)
        if self.level == "L2":
            self._check_kernels()
        if self.task_config.get("file_format") == "bin":
            raise wrong('file_format is "bin"; in PyNative mode it must be "npy"')

    def _check_kernels(self):
        """Of one API, which only a device's own dump can record."""
        if device() != "Ascend":
            raise wrong('level is "L2" and MindSpore runs in PyNative mode on %s: kernels of one API can be recorded only where the device '
                        "offers it, on Ascend; use level L1, L0 or mix, or set_context(mode=GRAPH_MODE)" % device())
        if self.task != "tensor":
            raise wrong('task is "%s"; level L2 goes with task tensor' % self.task)
        if self.scope or len(self.list) != 1 or not API_NAME.match(self.list[0]):
            raise wrong("scope is %r and list is %r; at level L2 in PyNative mode list must name exactly one call as in dump.json, such as "
                        "Mint.matmul.0.forward, and scope nothing" % (self.scope, self.list))
        self.kernel_api, self.list = self.list[0], []

    def _check_static(self):
        if self.task not in STATIC_TASKS:
            raise wrong('task is "%s"; in a static graph there are: %s' % (self.task, ", ".join(STATIC_TASKS)))
        if self.level != "L2":
            raise wrong('level is "%s"; in a static graph (GRAPH_MODE) it must be "L2"' % self.level)
        if not os.path.isabs(self.dump_path):
            raise wrong('dump_path is "%s"; in a static graph it must be an absolute path, as in "/home/data_dump"' % self.dump_path)
        if len(self.data_mode) != 1 or self.data_mode[0] not in ("all", "input", "output"):
            raise wrong("data_mode is %r; in a static graph it must be exactly one of all, input, output" % (self.data_mode,))
        if self.scope:
            raise wrong("scope is %r; in a static graph it cannot be set: use list" % (self.scope,))
        self._check_kernel_names()
        if device() == "CPU" and self.task != "tensor":
            raise wrong('task is "%s"; in a static graph on CPU MindSpore dumps tensors only: use task tensor, or a GPU or Ascend device' % self.task)
        self.file_format = choice("file_format", given(self.task_config.get("file_format"), "npy"), ("npy", "bin"))
        self.check_mode = choice("check_mode", given(self.task_config.get("check_mode"), "all"), ("all", "aicore", "atomic"))
        if self.summary_mode != "statistics":
            raise wrong('summary_mode is "%s"; in a static graph it must be "statistics"' % self.summary_mode)

    def _check_kernel_names(self):
        """MindSpore would take a regular expression that is none for a name, or end with it at the first compilation."""
        if self.tensor_list:
            raise wrong("tensor_list is %r; in a static graph it cannot be set: use task tensor and list" % (self.tensor_list,))
        for item in self.list:
            found = REGEX.match(item)
            why = "it is empty" if not item.strip() else "its end is missing" if item.startswith("name-regex") and not found else None
            try:
                re.compile(found.group(1) if found else "")
            except re.error as e:
                why = str(e)
            if why:
                raise wrong('list has "%s"; in a static graph names, types and name-regex(...) with a regular expression are allowed: %s' % (item, why))

    def _check_scope(self):
        if not self.static:
            if self.level == "L1":
                for name in self.scope:
                    if MODULE_NAME.match(name):
                        raise wrong('scope has "%s"; at level L1 names of APIs are needed, such as Mint.matmul.0.forward' % name)
            super()._check_scope()

    def _warn_unknown(self, raw):
        super()._warn_unknown(raw)
        for key, nothing in PYTORCH_ONLY.items():
            if raw.get(key) not in nothing or self.task_config.get(key) not in nothing:
                instead = "; call seed_all()" if key in ("seed", "is_deterministic", "rm_dropout") else ""
                log.warning('config.json: "%s" is for PyTorch only and not used%s', key, instead)

    def _read_free_benchmark(self, part):
        def one(key, default, allowed):
            return choice(key, given(part.get(key), default), allowed)

        one("fuzz_device", "npu", ("npu",))
        self.pert_mode = one("pert_mode", "improve_precision", PERT_MODES)
        self.handler_type = one("handler_type", "check", ("check", "fix"))
        one("fuzz_stage", "forward", ("forward",))
        one("fuzz_level", "L1", ("L1",))
        if part.get("if_preheat") not in (None, False, "false"):
            raise wrong("if_preheat is %r; it is for PyTorch only, must be false on MindSpore" % (part["if_preheat"],))
        for key, default in (("preheat_step", 15), ("max_sample", 20)):
            whole(key, given(part.get(key), default), 1)
        if self.handler_type == "fix" and self.pert_mode != "improve_precision":
            raise wrong('handler_type is "fix" and pert_mode is "%s"; fix goes with improve_precision only' % self.pert_mode)
