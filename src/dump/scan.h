/*
 * scan.h - where the records of a dump.json begin and end, without building a tree.
 *
 * A dump of a large model is hundreds of megabytes of JSON whose records are independent of each other. One cheap pass
 * over the bytes, which looks at strings and brackets only, finds them; each is parsed when it is needed and forgotten
 * afterwards. What stands inside a record is not checked here.
 *
 * A record takes 48 bytes of memory, and 32 more until all are known; its text is ten times that in a real dump. Texts
 * whose records are so many and so short that they take 64 MiB more than they have are refused.
 */
#ifndef MSP_DUMP_SCAN_H
#define MSP_DUMP_SCAN_H

#include "core/arena.h"
#include "core/str.h"
#include "msprobe/error.h"

typedef struct msp_dump_span {
    msp_str name;  /* the key, escapes resolved */
    msp_str value; /* the record's own text */
} msp_dump_span;

typedef struct msp_dump_scan {
    msp_arena arena;                      /* names that had escapes */
    msp_str task, level, framework, data; /* text of these members; empty when absent */
    msp_dump_span *spans;                 /* of "data", when that is an object */
    size_t count, cap;
    size_t excess; /* bytes of memory that records take beyond their own text */
    bool data_is_object;
    bool cut;      /* the text ends inside the object */
    size_t cut_at; /* from here on nothing was used */
} msp_dump_scan;

/*
 * Scan size bytes at text, which must outlive the result. MSP_E_FORMAT when the text is no JSON object (without a
 * position: the JSON parser knows that better), MSP_E_LIMIT, MSP_E_NOMEM. A text that just ends is no error: cut is
 * set.
 */
MSP_CHECK msp_status msp_dump_scan_text(msp_dump_scan *out, const char *text, size_t size, msp_error *err);
void msp_dump_scan_release(msp_dump_scan *s);

#endif
