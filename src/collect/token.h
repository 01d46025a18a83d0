/*
 * token.h - the binary form of a record, between msp_record_* and the writer.
 *
 * A frame in the ring is a header of 16 bytes and a body, padded to 8 bytes:
 *     u32 size      of header and body, without padding
 *     u16 kind      FRAME_*
 *     u16 waits     not 0: statistics of it are still on their way; see msp_collect_settle()
 *     u32 unit      the unit it belongs to
 *     u32 arg       stack id, ticket, ... by kind
 * The body of FRAME_VALUE is a name and one value; values are tokens: one byte TOKEN_*, then the payload. Texts are u32
 * length and bytes. All numbers are in the machine's own byte order: ring and writer never leave it.
 */
#ifndef MSP_COLLECT_TOKEN_H
#define MSP_COLLECT_TOKEN_H

#include <stdint.h>

typedef enum frame_kind {
    FRAME_SKIP = 0, /* the rest of the ring up to its end is empty: go on at its beginning */
    FRAME_UNIT,     /* texts: dir, task, level, framework, data_dir, file, mark; arg: msp_unit_kind, and UNIT_* */
    FRAME_VALUE, /* text: name; then a value; arg: the hole that it fills, 0: none; in units of lines the stack's id */
    FRAME_HOLE,  /* arg: a number; the value that fills it stands here when it comes in time */
    FRAME_SITE,  /* text: name, parent; arg: stack id; u8: parent is there */
    FRAME_STACK, /* arg: stack id; texts: frames, to the end of the body */
    FRAME_ERROR, /* text for dump_error_info.log */
    FRAME_CLOSE, /* the unit is complete */
    FRAME_FLUSH, /* arg: ticket to publish */
    FRAME_SPILL, /* one whole frame, too large for the ring, is in a file beside it; arg: the file's number */
    FRAME_CALL   /* FRAME_VALUE and FRAME_SITE in one: text: name; then a value and TOKEN_SITE; arg: stack id */
} frame_kind;

/* UNIT_AT_HOME: the folders that the unit writes to are given from the ring's own on. */
enum { UNIT_KIND = 0xff, UNIT_NO_DATA_DIR = 0x100, UNIT_AT_HOME = 0x200 };

typedef struct frame_header {
    uint32_t size;
    uint16_t kind;
    uint16_t waits;
    uint32_t unit;
    uint32_t arg;
} frame_header;

typedef enum token {
    TOKEN_NULL = 1,
    TOKEN_TRUE,
    TOKEN_FALSE,
    TOKEN_INT,   /* i64 */
    TOKEN_FLOAT, /* f64 */
    TOKEN_TEXT,  /* text */
    TOKEN_KEY,   /* text */
    TOKEN_OBJECT,
    TOKEN_ARRAY,
    TOKEN_END,
    TOKEN_TENSOR, /* packed: see tensor_token in record.h */
    TOKEN_SITE    /* u8: parent is there; text: parent */
} token;

#endif
