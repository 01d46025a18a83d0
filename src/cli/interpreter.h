/* interpreter.h - the Python that what needs torch is started in. */
#ifndef MSP_CLI_INTERPRETER_H
#define MSP_CLI_INTERPRETER_H

#include "msprobe/error.h"

enum { MSP_INTERPRETER_PATH = 4096 };

/*
 * The interpreter: $MSPROBE_PYTHON, else python3 or python beside this command (an environment's bin folder has both),
 * else python3 on the PATH. MSP_E_NOT_FOUND says what to set.
 */
MSP_CHECK msp_status msp_interpreter_find(char out[MSP_INTERPRETER_PATH], msp_error *err);

/*
 * Run it with these words (the first of which it finds in words[1]; words[0] is filled in, the last is NULL) and wait.
 * *code is its exit status; ended by a signal, 128 and the signal. Its output is ours.
 */
MSP_CHECK msp_status msp_interpreter_run(int *code, const char **words, msp_error *err);

#endif
