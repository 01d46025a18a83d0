/*
 * dump_read.h - what the rooms above see of a dump beyond msprobe/dump.h.
 *
 * How the generations differ, as far as a reader meets it:
 *   1.0.4  no "framework", no "parameters" and "parameters_grad"; Max_except_inf_nan beside Max; stack.json by name
 *   8.2    "parameters_grad" without a number; stack.json with numbered groups from May 2025 on
 *   8.3    the same; "is_recompute"; statistics may be null
 *   26.x   "parameters_grad.<n>"; folders proc<pid>; Mean and Norm null for integers
 * All of them are objects of records whose leaves have a "type"; unknown keys are passed over.
 */
#ifndef MSP_DUMP_READ_H
#define MSP_DUMP_READ_H

#include "text/json.h"
#include "msprobe/dump.h"

/* As msp_dump_open(), from memory that the caller keeps alive; name stands for the path in messages. */
MSP_CHECK msp_status msp_dump_open_text(msp_dump **out, const char *text, size_t size, const char *name,
                                        msp_error *err);

/* As msp_stack_open(), in the same way. */
MSP_CHECK msp_status msp_stack_open_text(msp_stack **out, const char *text, size_t size, msp_error *err);

/* Stacks gathered from other files, which must live as long, with room for so many names. */
MSP_CHECK msp_status msp_stack_gather(msp_stack **out, size_t names, msp_error *err);

/* Give name the frames of recorded in from; it has none where from, which may be NULL, has none. False: no memory. */
bool msp_stack_put(msp_stack *s, msp_str name, const msp_stack *from, msp_str recorded);

/*
 * Parse the i-th record. Strings without escapes are views of the mapped file and live as long as d; the others, and
 * the tree, live until doc is released; a small tree lives in the caller's room. A record that is no JSON gives
 * MSP_E_FORMAT with the place in the whole file.
 */
MSP_CHECK msp_status msp_dump_record(const msp_dump *d, size_t i, msp_json_doc *doc, void *room, size_t room_size,
                                     msp_error *err);

/* True when p points into the file's own text, so that it lives as long as d. */
bool msp_dump_owns(const msp_dump *d, const void *p);

/* The i-th record as it stands in the file, which need not be JSON. */
msp_str msp_dump_record_text(const msp_dump *d, size_t i);

/* True for a file with numbered groups of calls (8.2 and later), false for one with a list of frames per name. */
bool msp_stack_is_grouped(const msp_stack *s);

/* The frames of a call as a JSON array of strings, or NULL. */
const msp_json *msp_stack_frames(const msp_stack *s, msp_str name);

/* MSP_E_INVALID when everybody may write to path and somebody else owns it; nothing is said about a missing path. */
MSP_CHECK msp_status msp_dump_check_owner(const char *path, msp_error *err);

#endif
