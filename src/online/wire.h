/*
 * wire.h - the frames of online run_ut, between a training process's sender and the checker (docs/online-protocol.md).
 *
 * A frame is a header of 16 bytes and a payload of at most MSP_WIRE_MOST bytes. All numbers are little-endian.
 *     u8[4] "MSPO"
 *     u8    version of this format: 1
 *     u8    kind, MSP_WIRE_*
 *     u16   0
 *     u32   size of the payload
 *     u32   CRC-32 of the payload
 * Payloads are fixed numbers and texts (u32 length, bytes); what follows the last field is an error, so that a field
 * can only be added with a new version. Nothing is executed or allocated by what a payload says: a reader gets pointers
 * into the bytes that have arrived.
 */
#ifndef MSP_ONLINE_WIRE_H
#define MSP_ONLINE_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include "core/str.h"
#include "msprobe/error.h"

enum {
    MSP_WIRE_VERSION = 1,
    MSP_WIRE_HEADER = 16,
    MSP_WIRE_MOST = 16 << 20, /* a verdict with thousands of results fits; data comes in smaller pieces */
    MSP_WIRE_PIECE = 256 << 10,
    MSP_WIRE_JOB = 16
};

typedef enum msp_wire_kind {
    MSP_WIRE_HELLO = 1, /* sender: u16 lowest and highest version, u8[16] job, u64 rank, text program */
    MSP_WIRE_WELCOME,   /* checker: u64 the largest call that it takes, in bytes */
    MSP_WIRE_REFUSED,   /* checker: text why; the connection is over, and trying again is of no use */
    MSP_WIRE_CALL,      /* sender: u64 number, u64 size in bytes; pieces of so many bytes in sum follow */
    MSP_WIRE_DATA,      /* sender: the next bytes of the call (call.h) */
    MSP_WIRE_VERDICT,   /* checker: u64 number, u8 status, text result line, text details lines */
    MSP_WIRE_ACK,       /* sender: u64 number: the verdict is written down, and can be forgotten */
    MSP_WIRE_STEP,      /* sender: u64 step: it has all verdicts of it */
    MSP_WIRE_PING,      /* either: it is alive */
    MSP_WIRE_END,       /* sender: nothing more will come */
    MSP_WIRE_BYE,       /* checker: it has heard END */
    MSP_WIRE_ALIVE,     /* checker, in a shared folder: u64 beat, u64 the largest call that it takes */
    MSP_WIRE_KINDS
} msp_wire_kind;

typedef struct msp_wire_frame {
    msp_wire_kind kind;
    msp_str payload;
} msp_wire_frame;

/*
 * The frame at the beginning of size bytes. *used is its length, 0: more bytes are needed. MSP_E_FORMAT: these are no
 * frames, or damaged ones; nothing that follows can be trusted.
 */
MSP_CHECK msp_status msp_wire_parse(msp_wire_frame *out, size_t *used, const void *bytes, size_t size, msp_error *err);

/* ---- payloads ---------------------------------------------------------------------------------------------------- */

/* After the first failure bad is set and all reads give zeros and empty texts. */
typedef struct msp_wire_reader {
    const unsigned char *p, *end;
    bool bad;
} msp_wire_reader;

msp_wire_reader msp_wire_read(msp_str payload);
uint64_t msp_wire_u(msp_wire_reader *r, int bytes); /* 1 to 8 */
const void *msp_wire_bytes(msp_wire_reader *r, size_t n);
msp_str msp_wire_text(msp_wire_reader *r);

/* The payload was read to its end, and nothing was wrong. */
bool msp_wire_is_whole(const msp_wire_reader *r);

typedef struct msp_wire_hello {
    unsigned lowest, highest;
    unsigned char job[MSP_WIRE_JOB];
    uint64_t rank;
    msp_str program;
} msp_wire_hello;

typedef struct msp_wire_verdict {
    uint64_t number;
    unsigned status;         /* msp_precheck_status */
    msp_str result, details; /* an empty result: the call could not be used, and details is why */
} msp_wire_verdict;

MSP_CHECK msp_status msp_wire_read_hello(msp_wire_hello *out, msp_str payload, msp_error *err);
MSP_CHECK msp_status msp_wire_read_verdict(msp_wire_verdict *out, msp_str payload, msp_error *err);

/* n numbers of 8 bytes and nothing else. */
MSP_CHECK msp_status msp_wire_read_numbers(uint64_t *out, int n, msp_str payload, msp_error *err);

/* ---- making frames ----------------------------------------------------------------------------------------------- */

/* Append little-endian numbers and texts to a payload; a failed allocation is remembered by the buffer. */
void msp_wire_put_u(msp_buf *b, uint64_t v, int bytes);
void msp_wire_put_text(msp_buf *b, msp_str s);

/* Begin a frame in b, put its payload behind, and end it: size and checksum are filled in then. */
size_t msp_wire_begin(msp_buf *b, msp_wire_kind kind);
void msp_wire_end(msp_buf *b, size_t begin);

/* A frame with n numbers. */
void msp_wire_put_numbers(msp_buf *b, msp_wire_kind kind, const uint64_t *numbers, int n);

#endif
