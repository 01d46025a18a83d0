/* construct.h - construct.json, which stands beside a dump.json: the module that each call and module ran in. */
#ifndef MSP_DUMP_CONSTRUCT_H
#define MSP_DUMP_CONSTRUCT_H

#include "core/file.h"
#include "core/map.h"
#include "text/json.h"

typedef struct msp_construct {
    msp_mapping map;
    msp_json_doc doc;
    size_t count;    /* members of doc */
    msp_map members; /* name: which member */
} msp_construct;

/*
 * The construct.json beside the file at dump_path. Errors name it: MSP_E_NOT_FOUND, MSP_E_IO, MSP_E_FORMAT,
 * MSP_E_CHANGED (cut short meanwhile), MSP_E_NOMEM. *out is to be closed in any case, and then its texts are gone.
 */
MSP_CHECK msp_status msp_construct_open(msp_construct *out, const char *dump_path, msp_error *err);

/* As msp_construct_open(), but a file that is missing or broken only says nothing. False: out of memory. */
MSP_CHECK bool msp_construct_open_if_any(msp_construct *out, const char *dump_path);

/* The i-th name of the file, and what it ran in; empty: nothing. */
msp_str msp_construct_name(const msp_construct *c, size_t i);
msp_str msp_construct_parent_at(const msp_construct *c, size_t i);

/* What the call or module of this name ran in; empty: nothing, or the file does not know it. */
msp_str msp_construct_parent(const msp_construct *c, msp_str name);

void msp_construct_close(msp_construct *c);

#endif
