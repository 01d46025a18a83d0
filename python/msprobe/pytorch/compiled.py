"""Compiled code while recording, config key "compiled".

"skip": it runs as without us (python/ext/patch/compiled.c), and its insides are not recorded. "eager": torch.compile's functions run what they were
made from, by torch's published stance.
"""

import torch

from msprobe.core.log import log

_SINCE = "2.6"


def eager_stance():
    """What makes compiled functions run eagerly; None, and a word in the log, where this torch has no such thing."""
    if not hasattr(torch, "compile"):
        return None
    if not hasattr(torch.compiler, "set_stance"):
        log.warning('"compiled" is "eager"; that needs torch.compiler.set_stance of torch %s, and this is %s: compiled code runs compiled, and what runs '
                    "inside it is not recorded", _SINCE, torch.__version__)
        return None
    return Stance()


class Stance:
    """torch.compiler.set_stance("force_eager") from take() to leave(), which brings back the one before."""

    def __init__(self):
        self._taken = None
        self._said = False

    def take(self):
        if self._taken is not None:
            return
        try:
            self._taken = torch.compiler.set_stance("force_eager")
        except RuntimeError as e:  # inside compiled code
            log.warning("compiled code goes on to run compiled: %s", e)
            return
        if not self._said:
            log.info('"compiled" is "eager": while recording, compiled functions run eagerly; the numbers are those of eager code')
            self._said = True

    def leave(self):
        taken, self._taken = self._taken, None
        if taken is None:
            return
        try:
            taken.__exit__(None, None, None)
        except RuntimeError as e:
            self._taken = taken
            log.warning("compiled code goes on to run eagerly: %s", e)
