/* legacy.h - calls and modules as the older tools record them: ptdbg_ascend and torch_npu.hooks. */
#ifndef MSP_PY_LEGACY_H
#define MSP_PY_LEGACY_H

#include "patch/patch.h"

bool msp_probe_is_legacy(void);
PyObject *msp_probe_legacy_call(probe_api *api, PyObject *self, PyObject *receiver, PyObject *args, PyObject *kwargs);
PyObject *msp_probe_legacy_module(PyObject *self, PyObject *all);
PyObject *msp_probe_legacy_rules(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *msp_probe_legacy_unit(PyObject *self, PyObject *args);
PyObject *msp_probe_legacy_matched(PyObject *self, PyObject *unused);

#endif
