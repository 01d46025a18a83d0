/* show.h - what the files of 'msprobe show' and 'msprobe diff' share. */
#ifndef MSP_CLI_SHOW_H
#define MSP_CLI_SHOW_H

#include <string.h>
#include "cli.h"
#include "jsonout.h"
#include "msprobe/look.h"
#include "summary_parts.h"

/* Text that is not terminated, safe to show. */
void msp_show_text(FILE *out, msp_style style, msp_look_text t);
void msp_show_json_text(msp_jsonout *j, const char *key, msp_look_text t);

/* Text that is compared with a word. */
static inline bool
msp_show_is(msp_look_text t, const char *word)
{
    return t.len == strlen(word) && memcmp(t.p, word, t.len) == 0;
}

/* "step0/rank1", "step0", or "" for a place that no folder names. */
void msp_show_label(char *buf, size_t size, const msp_dump_place *place);

/* A number as people read it: "1.25e-05". Returns buf. */
const char *msp_show_number(char buf[32], double v);

/* A number with the twelve digits that compare's tables have: a cosine of 0.99999 is not 1. */
const char *msp_show_digits(char buf[32], double v);

/* A cell: numbers with their digits, text as it is; "-" for an empty one. */
void msp_show_cell(FILE *out, msp_cell c);
void msp_show_json_cell(msp_jsonout *j, const char *key, msp_cell c);

/* "/w/train.py:10 in main", the code below it, and both indented so far. */
void msp_show_frame(FILE *out, const char *frame, int indent);

/* show_dump.c: what a dump holds. all: every call, else the first ones. */
void msp_show_dump(FILE *out, msp_look *l, const char *label, bool all);
void msp_show_dump_line(FILE *out, const msp_look *l, const char *label);
void msp_show_dump_line_head(FILE *out);
void msp_show_dump_json(msp_jsonout *j, msp_look *l, const msp_dump_place *place);

/* show_call.c: one call. */
void msp_show_call(FILE *out, msp_look *l, size_t call, const char *label);
void msp_show_call_json(msp_jsonout *j, msp_look *l, size_t call, const msp_dump_place *place);

/* show_tensor.c: a file of tensors, or the tensor in it that name names (NULL: any). */
msp_exit_code msp_show_tensor_file(const msp_args *args, const char *path, const char *name);

/* Print an element, and its index: "[1, 2, 3]". */
void msp_show_index(FILE *out, const msp_tensor *t, int64_t at);
void msp_show_json_index(msp_jsonout *j, const char *key, const msp_tensor *t, int64_t at);
void msp_show_shape(FILE *out, const msp_tensor *t);
void msp_show_json_shape(msp_jsonout *j, const char *key, const msp_tensor *t);
const char *msp_show_element(char buf[80], const msp_tensor *t, int64_t at);

/* The number of the tensor in f that is called name; f's count when there is none. */
size_t msp_show_tensor_named(const msp_tensor_file *f, const char *name);

#endif
