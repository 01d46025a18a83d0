/* find_call.h - which call of which dump a person means. */
#ifndef MSP_CLI_FIND_CALL_H
#define MSP_CLI_FIND_CALL_H

#include "msprobe/error.h"

typedef struct msp_found_call {
    char *path; /* the dump.json that has it: the first, where several have */
    char *name; /* of the call, whole: "Functional.relu.0.forward" */
} msp_found_call;

/*
 * Look for a call below a path (a dump.json, the folder of a rank, a step or a whole dump). name is that of a call,
 * with or without .forward and .backward, of a tensor of it, or a part that only one call has. Otherwise
 * MSP_E_NOT_FOUND, and err proposes names that are near.
 */
MSP_CHECK msp_status msp_find_call(msp_found_call *out, const char *dump, const char *name, msp_error *err);
void msp_found_call_release(msp_found_call *f);

#endif
