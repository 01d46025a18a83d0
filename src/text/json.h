/*
 * json.h - JSON documents in an arena, and a streaming writer whose text is what Python's json module writes.
 *
 * Reading. The text stays where it is (a mapping, usually) and must outlive the document: strings without escapes and
 * all numbers are views into it. Key order is kept. NaN, Infinity and -Infinity are accepted, as Python writes them.
 * Numbers keep their text, so that 1 and 1.0 and 123456789012345678901234567890 are told apart; they are converted when
 * asked for. Everything else is strict: no trailing commas, no comments, no control characters in strings, nothing
 * after the value; strings must be UTF-8. A byte order mark is skipped. Repeated keys: the last one wins in
 * msp_json_get(), as in Python; all are seen when walking.
 *
 * Depth is bounded (MSP_JSON_MAX_DEPTH). Memory is 16 bytes per value and per key, and up to 24 more while what they
 * stand in is open, plus the text of strings with escapes: 1.1 bytes per byte of an indented dump.json, 1.5 without
 * indentation. A text that asks for more than its size plus 128 MiB is refused (MSP_E_LIMIT): that takes
 * millions of values of a few bytes each, such as a list of more than three million floats.
 */
#ifndef MSP_JSON_JSON_H
#define MSP_JSON_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include "core/arena.h"
#include "core/number.h"
#include "core/str.h"
#include "msprobe/error.h"

enum { MSP_JSON_MAX_DEPTH = 1024 };

typedef enum msp_json_kind {
    MSP_JSON_NULL = 0,
    MSP_JSON_FALSE,
    MSP_JSON_TRUE,
    MSP_JSON_INT,   /* digits only, with an optional minus */
    MSP_JSON_FLOAT, /* with a point or exponent, or NaN, Infinity, -Infinity */
    MSP_JSON_STRING,
    MSP_JSON_ARRAY,
    MSP_JSON_OBJECT
} msp_json_kind;

/*
 * One value. Treat as opaque but for msp_json_kind_of(): the parser decides how it is laid out (json_node.h), 16 bytes
 * each.
 */
typedef struct msp_json msp_json;

typedef struct msp_json_doc {
    msp_arena arena;
    const msp_json *root; /* NULL for an empty document */
    bool cut;             /* the text ended early and was recovered: see msp_json_parse_recover() */
    size_t cut_at;        /* then: the byte from which on nothing was used */
} msp_json_doc;

/*
 * Parse size bytes at text. On failure the document is empty and err says what is wrong, with line, column and byte
 * ("line 3, column 17 (byte 95): expected ':' after a key"). Returns MSP_E_FORMAT, MSP_E_LIMIT (nested too deeply, or
 * too much memory for a text of this size) or MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_json_parse(msp_json_doc *out, const char *text, size_t size, msp_error *err);

/* msp_json_parse() with room_size bytes of the caller's for a small document: where they are enough no memory is taken.
 */
MSP_CHECK msp_status msp_json_parse_in(msp_json_doc *out, void *room, size_t room_size, const char *text, size_t size,
                                       msp_error *err);

/*
 * msp_json_parse() for a file that was cut off or torn while it was written: every value that is complete is kept,
 * containers that the cut leaves open are closed, an incomplete member at the end is dropped, cut is set. depth says
 * how deep members must be complete to be kept: with keep_depth 2 in {"data": {"a": {...}, "b": {..cut }}} the whole of
 * "b" is dropped, because members of "data" are records; 0 keeps every complete piece. A number that the cut touches
 * may have had more digits and is dropped. Zero bytes at the end of the text (a file that was extended but not filled
 * before a crash) count as cut off. Nothing complete: root is NULL. A text that is wrong before its end fails as in
 * msp_json_parse().
 */
MSP_CHECK msp_status msp_json_parse_recover(msp_json_doc *out, const char *text, size_t size, int keep_depth,
                                            msp_error *err);

void msp_json_doc_release(msp_json_doc *doc);

/* ---- values: every function accepts NULL and then answers as for JSON null ----------------------- */

msp_json_kind msp_json_kind_of(const msp_json *v);

/* Elements of an array or members of an object; 0 for anything else. */
size_t msp_json_count(const msp_json *v);

/* i-th element of an array, or i-th value of an object; NULL when there is none. O(1). */
const msp_json *msp_json_at(const msp_json *v, size_t i);

/* i-th key of an object. */
msp_str msp_json_key(const msp_json *v, size_t i);

/* The value of the last member with this key, or NULL. Linear in the number of members: build an msp_map for large
 * objects. */
const msp_json *msp_json_get(const msp_json *v, const char *key);

/* The text of a string, with escapes resolved (a lone surrogate becomes U+FFFD); empty for anything else. */
msp_str msp_json_string(const msp_json *v);

/* The number as written: "1e+300", "NaN", "-0.0"; empty for anything else. */
msp_str msp_json_number_text(const msp_json *v);

/* True when v is an INT that fits. */
bool msp_json_to_i64(const msp_json *v, int64_t *out);

/* True when v is INT or FLOAT; correctly rounded, NaN and infinities included. */
bool msp_json_to_f64(const msp_json *v, double *out);

/*
 * Where in the text v begins, for messages about its content: 1-based line and column, in characters. Linear in the
 * text. A value of a YAML text: see yaml.h.
 */
void msp_json_position(const msp_json_doc *doc, const msp_json *v, const char *text, size_t *line, size_t *column);

/* ---- writer ------------------------------------------------------------------------------------- */

/*
 * Writes into a msp_buf that the caller flushes when it likes. Separators, indentation and escapes are Python's
 * json.dump with ensure_ascii: indent < 0 gives one line (", " and ": "), otherwise newlines and indent spaces per
 * level. Wrong nesting is an assert.
 */
typedef struct msp_json_writer {
    msp_buf *out;
    int indent;
    int depth;
    bool first;     /* nothing written at this level yet */
    bool after_key; /* the next value follows a key */
} msp_json_writer;

void msp_json_writer_init(msp_json_writer *w, msp_buf *out, int indent);
void msp_json_begin_object(msp_json_writer *w);
void msp_json_end_object(msp_json_writer *w);
void msp_json_begin_array(msp_json_writer *w);
void msp_json_end_array(msp_json_writer *w);
void msp_json_write_key(msp_json_writer *w, msp_str key);
void msp_json_write_null(msp_json_writer *w);
void msp_json_write_bool(msp_json_writer *w, bool v);
void msp_json_write_i64(msp_json_writer *w, int64_t v);
void msp_json_write_u64(msp_json_writer *w, uint64_t v);
void msp_json_write_f64(msp_json_writer *w, double v);            /* NaN, Infinity, -Infinity as Python writes them */
void msp_json_write_string(msp_json_writer *w, msp_str v);        /* invalid UTF-8 becomes U+FFFD */
void msp_json_write_value(msp_json_writer *w, const msp_json *v); /* a parsed value, numbers as they were written */

#endif
