/*
 * pack.h - what processes of one command hand each other: pairs to be compared, and what came out of them.
 *
 * One function per type names its fields once and serves both directions. Processes run the same program (share.c makes
 * sure), so numbers travel as they lie in memory; what is read is checked against the message's end all the same.
 */
#ifndef MSP_COMPARE_PACK_H
#define MSP_COMPARE_PACK_H

#include "compare/job/job.h"
#include "compare/page/page_run.h"
#include "compare/run/run.h"

typedef struct msp_pack {
    msp_buf *out; /* NULL: read from at */
    const char *at, *end;
    bool failed; /* out of memory, or the message is cut short; what was read is valid or empty */
} msp_pack;

void msp_pack_raw(msp_pack *p, void *field, size_t size);
void msp_pack_text(msp_pack *p, char **text); /* may be NULL; what is read is msp_free()'s */

/* A pair of the plan that has both sides. When read, its places are allocated too: msp_pack_plan_release(). */
void msp_pack_plan(msp_pack *p, msp_plan_pair *pair);
void msp_pack_plan_release(msp_plan_pair *pair);

/* All that a compared pair leaves. When read, they are zeroed before. */
void msp_pack_pair(msp_pack *p, msp_compare_pair *pair);
void msp_pack_job(msp_pack *p, msp_job_part **part);
void msp_pack_da(msp_pack *p, msp_da_rank **rank);
void msp_pack_page(msp_pack *p, msp_page_part **part);

#endif
