/*
 * cmd_online.c - "msprobe __online PAGE": the process that sends a training process's calls to a checker.
 *
 * Started by the recorder, never by a person; it leaves its parent at once, as "__write" does.
 */
#include <unistd.h>
#include "cli.h"
#include "msprobe/online.h"

msp_exit_code
msp_cmd_online(const msp_args *args)
{
    msp_error err;
    msp_status st;
    pid_t pid;

    if (args->noperands != 1) {
        msp_error_set(&err, MSP_E_INVALID, "__online takes what a training process shares; the recorder starts it");
        return msp_cli_usage(NULL, &err);
    }
    pid = fork();
    if (pid != 0)
        return pid > 0 ? MSP_EXIT_OK : MSP_EXIT_FAILED;
    st = msp_online_send(args->operands[0], &err);
    return st == MSP_OK ? MSP_EXIT_OK : msp_cli_fail(st, &err);
}
