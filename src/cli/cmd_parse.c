/* cmd_parse.c - msprobe parse: stack and statistics of calls in a .pkl of ptdbg_ascend. */
#include <stdio.h>
#include <string.h>
#include "cli.h"
#include "msprobe/legacy.h"

static bool
print_text(const char *text, size_t len, void *payload)
{
    *(bool *)payload = true;
    return fwrite(text, 1, len, stdout) == len;
}

static bool
ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

msp_exit_code
msp_cmd_parse(const msp_args *args)
{
    bool any = false;
    msp_status st;
    msp_error err;

    if (args->noperands < 2) {
        msp_error_set(&err, MSP_E_INVALID, "give a .pkl file and the beginning of a call's name");
        return msp_cli_usage(args->command, &err);
    }
    if (ends_with(args->operands[0], ".json")) {
        msp_error_set(&err, MSP_E_INVALID,
                      "%s is no .pkl of ptdbg_ascend; msprobe show DUMP CALL shows a call of a dump.json",
                      args->operands[0]);
        return msp_cli_usage(args->command, &err);
    }
    st = msp_legacy_parse(args->operands[0], args->operands[1], print_text, &any, &err);
    if (st != MSP_OK && st != MSP_E_CANCELLED) /* cancelled: stdout is closed, and main() says so */
        return msp_cli_fail(st, &err);
    if (!any && st == MSP_OK && !msp_args_has(args, MSP_OPT_QUIET))
        fprintf(stderr, "no stack or statistics of a call whose name starts with %s in %s\n", args->operands[1],
                args->operands[0]);
    return MSP_EXIT_OK;
}
