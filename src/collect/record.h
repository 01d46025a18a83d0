/* record.h - the parts of the binary form that both ends know: see token.h for the frames. */
#ifndef MSP_COLLECT_RECORD_H
#define MSP_COLLECT_RECORD_H

#include <stdbool.h>
#include "collect/token.h"
#include "core/str.h"
#include "text/json.h"
#include "collect/live.h"

typedef enum tensor_stats_form {
    STATS_NONE = 0, /* four nulls */
    STATS_FLOAT,    /* four doubles */
    STATS_BOOL,     /* Max and Min as booleans, Mean and Norm null */
    STATS_SIGNED,   /* int64 extremes, double mean and norm */
    STATS_UNSIGNED, /* uint64 extremes, double mean and norm */
    STATS_COMPLEX,  /* three doubles, of the moduli; Norm null, as in the original's dumps of PyTorch */
    STATS_LOST      /* four nulls, where room was kept for statistics that never came */
} tensor_stats_form;

enum {
    TENSOR_GRAD = 1,
    TENSOR_CRC = 2,
    TENSOR_TYPE = 4,
    TENSOR_DTYPE = 8,
    TENSOR_FILE = 16,
    TENSOR_WHY = 32,
    TENSOR_OPEN = 64,
    TENSOR_WAITS = 128, /* a ticket (u64) stands in the place of the first statistic */
    TENSOR_VALUES = 256
};

/* Followed by the shape (i64 each), the statistics of its form, the texts that flags name, in the flags' order, and
 * with TENSOR_VALUES by the elements: u64 size in bytes, and the bytes in row-major order. */
typedef struct __attribute__((packed)) tensor_token {
    uint8_t token;
    uint8_t dtype;
    uint8_t ndim;
    uint8_t form;
    uint32_t flags;
    uint32_t crc;
} tensor_token;

/* Whether statistics of a frame in the ring are still to come: what was put in until then is seen by who is told no. */
static inline bool
msp_frame_waits(const frame_header *h)
{
    return __atomic_load_n(&h->waits, __ATOMIC_ACQUIRE) != 0;
}

/* Begin a frame of any kind in r, dropping what r held; and put a text into it. */
void msp_record_frame(msp_record *r, frame_kind kind, uint32_t unit, uint32_t arg);
void msp_record_frame_text(msp_record *r, const char *p, size_t len);

/*
 * A reader over a frame's body. Every read checks what is left: the ring of a killed process is input like any other.
 * After the first failure bad is set and all reads give zeros.
 */
typedef struct record_reader {
    const unsigned char *p, *end;
    bool bad;
} record_reader;

uint8_t msp_record_read_byte(record_reader *r);
msp_str msp_record_read_text(record_reader *r);

/* A tensor's token, taken apart: nothing is copied. */
typedef struct record_tensor {
    tensor_token head;
    record_reader shape, stats;
    msp_str type, dtype, file, why;
    const unsigned char *values; /* NULL: none */
    size_t nbytes;
} record_tensor;

/* Read one whose token byte was read already; false, and r->bad, when it is cut short or says what cannot be. */
bool msp_record_read_tensor(record_reader *r, record_tensor *out);
int64_t msp_record_read_i64(record_reader *r);
double msp_record_read_f64(record_reader *r);

/* Write the value at r as JSON, and stop behind it; false when the tokens are not one well-formed value. */
bool msp_record_to_json(record_reader *r, msp_json_writer *w);

#endif
