/*
 * checks.h - what Python's part of each check needs of the C library.
 *
 *     compare.c    two dumps side by side
 *     replay.c     calls of a dump run again, and measured against higher precision (msprobe.replay)
 *     precheck.c   run_ut: one call against itself in higher precision (msprobe.precheck)
 *     online.c     run_ut on another machine while the training runs
 *     benchmark.c  task free_benchmark: a call against itself with its inputs changed a little
 *
 * What the functions take and return is told where module.c puts them into the module's table. All return NULL with
 * an exception set when they fail; what takes long runs without the GIL.
 */
#ifndef MSP_PY_CHECKS_H
#define MSP_PY_CHECKS_H

#include "module.h"

/* ---- two dumps --------------------------------------------------------------------------------------------------- */

/* compare(): a run of msprobe compare. parse(): calls in a .pkl of ptdbg_ascend, as text. */
PyObject *msp_py_compare(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *msp_py_parse(PyObject *module, PyObject *args);

/* ---- calls run again --------------------------------------------------------------------------------------------- */

/* The records of a dump, the error that a call has added, and a file of such measurements, call by call. */
PyObject *msp_py_dump_records(PyObject *module, PyObject *path);
PyObject *msp_py_local_error(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *msp_py_evidence_open(PyObject *module, PyObject *path);
PyObject *msp_py_evidence_call(PyObject *module, PyObject *args);
PyObject *msp_py_evidence_result(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *msp_py_evidence_close(PyObject *module, PyObject *evidence);

/* ---- run_ut ------------------------------------------------------------------------------------------------------ */

/* Results are measured and judged, and their lines made; a file that was begun is continued behind its last whole line.
 * end_with(pid) lets a process of run_ut end with the one that has started it. */
PyObject *msp_py_precheck_output(PyObject *module, PyObject *args);
PyObject *msp_py_precheck_result(PyObject *module, PyObject *args);
PyObject *msp_py_precheck_no_output(PyObject *module, PyObject *args);
PyObject *msp_py_precheck_name(PyObject *module, PyObject *arg);
PyObject *msp_py_precheck_headers(PyObject *module, PyObject *unused);
PyObject *msp_py_precheck_resume(PyObject *module, PyObject *args);
PyObject *msp_py_end_with(PyObject *module, PyObject *arg);

/* ---- run_ut while the training runs ------------------------------------------------------------------------------ */

/*
 * The collector asks before it writes a tensor's file. Waits for room without the GIL, as long as its bound allows;
 * false: leave the file out. Always true without online run_ut.
 */
bool msp_py_online_room(const msp_tensor *t);

PyObject *msp_py_online_open(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *msp_py_online_begin(PyObject *module, PyObject *args);
PyObject *msp_py_online_end(PyObject *module, PyObject *unused);
PyObject *msp_py_online_counts(PyObject *module, PyObject *unused);
PyObject *msp_py_online_close(PyObject *module, PyObject *unused);

PyObject *msp_py_online_serve(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *msp_py_online_next(PyObject *module, PyObject *args);
PyObject *msp_py_online_answer(PyObject *module, PyObject *args);
PyObject *msp_py_online_served(PyObject *module, PyObject *server);
PyObject *msp_py_online_stop(PyObject *module, PyObject *server);
PyObject *msp_py_online_call(PyObject *module, PyObject *path);

/* ---- free_benchmark ---------------------------------------------------------------------------------------------- */

PyObject *msp_py_perturb(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_compare(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_judge_cpu(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_bits(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_limit(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_floor(PyObject *module, PyObject *args);
PyObject *msp_py_preheat_samples(PyObject *module, PyObject *args);
PyObject *msp_py_preheat_note(PyObject *module, PyObject *args);
PyObject *msp_py_preheat_adjust(PyObject *module, PyObject *args);
PyObject *msp_py_finding_write(PyObject *module, PyObject *args);

#endif
