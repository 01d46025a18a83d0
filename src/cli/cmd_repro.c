/* cmd_repro.c - msprobe repro: one call as a script of its own, written by msprobe.replay in the environment's Python.
 */
#include <stdio.h>
#include <stdlib.h>
#include "cli.h"
#include "find_call.h"
#include "interpreter.h"

static msp_status
check_usage(const msp_args *args, msp_error *err)
{
    if (args->noperands < 2)
        return msp_error_set(err, MSP_E_INVALID, "give a dump and the name of a call");
    if (!msp_args_has(args, MSP_OPT_OUTPUT))
        return msp_error_set(err, MSP_E_INVALID, "where to? -o DIR");
    return MSP_OK;
}

msp_exit_code
msp_cmd_repro(const msp_args *args)
{
    const char *form = msp_args_has(args, MSP_OPT_JSON) ? "json" : msp_args_has(args, MSP_OPT_QUIET) ? "quiet" : "text";
    msp_found_call found = {0};
    msp_exit_code code = MSP_EXIT_FAILED;
    msp_status st;
    msp_error err;
    int status = 0;

    st = check_usage(args, &err);
    if (st != MSP_OK)
        return msp_cli_usage(args->command, &err);
    st = msp_find_call(&found, args->operands[0], args->operands[1], &err);
    if (st == MSP_OK) {
        const char *words[] = {NULL,       "-m",       "msprobe.replay.repro",
                               found.path, found.name, msp_args_get(args, MSP_OPT_OUTPUT, NULL),
                               form,       NULL};

        st = msp_interpreter_run(&status, words, &err);
    }
    if (st != MSP_OK)
        code = msp_cli_fail(st, &err);
    else if (status == 0)
        code = MSP_EXIT_OK; /* else Python has said why */
    msp_found_call_release(&found);
    return code;
}
