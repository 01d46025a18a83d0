/* look_parts.h - a dump that is looked at, as the files of this room see it. */
#ifndef MSP_LOOK_PARTS_H
#define MSP_LOOK_PARTS_H

#include "compare/legacy/legacy.h"
#include "compare/rows/rows.h"
#include "core/str.h"
#include "msprobe/look.h"

struct msp_look {
    char *path;
    msp_dump *dump;         /* NULL for the older tools' files */
    msp_legacy_file legacy; /* empty for all others */
    msp_rows own;           /* of dump */
    msp_stack *stack;       /* of dump; may be NULL */
    const msp_rows *rows;   /* own, or legacy's */
    msp_buf frame;
    msp_look_summary summary;
};

static inline msp_look_text
msp_look_text_of(msp_str s)
{
    return (msp_look_text){s.p, s.len};
}

/* Is the call a module's, or a cell's; of backward? */
bool msp_look_is_module(msp_str name);
bool msp_look_is_backward(msp_str name);

/* Everything in l->summary that follows from the rows; l->summary.path and what the file says are set already. */
MSP_CHECK msp_status msp_look_sum_up(msp_look *l, msp_error *err);

/* Where NaN and inf come first, into l->summary. construct.json beside the dump says which call stands in which module.
 */
MSP_CHECK msp_status msp_look_trace(msp_look *l, msp_error *err);

#endif
