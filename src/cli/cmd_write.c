/*
 * cmd_write.c - "msprobe __write RING": the process that turns a training process's records into a dump.
 *
 * Started by the collector, never by a person. It leaves its parent at once, so that the training process has no child
 * of ours to wait for by mistake, and goes on until the ring is empty and its producer closed it or is gone.
 */
#include <unistd.h>
#include "cli.h"
#include "msprobe/collect.h"

msp_exit_code
msp_cmd_write(const msp_args *args)
{
    msp_error err;
    msp_status st;
    pid_t pid;

    if (args->noperands != 1) {
        msp_error_set(&err, MSP_E_INVALID, "__write takes the path of a ring; the collector starts it");
        return msp_cli_usage(NULL, &err);
    }
    pid = fork();
    if (pid != 0)
        return pid > 0 ? MSP_EXIT_OK : MSP_EXIT_FAILED;
    st = msp_collect_write(args->operands[0], &err);
    return st == MSP_OK ? MSP_EXIT_OK : msp_cli_fail(st, &err);
}
