/*
 * pickle.h - a pickle read as data by a small machine that executes nothing.
 *
 * A pickle is a program for a stack machine: opcodes push numbers, texts and containers, look up a global by module and
 * name, and call it. The machine here builds the numbers, texts and containers of protocols 0 to 5; globals and calls
 * are handed to three functions of the caller, which decide what a name may mean. No name is ever imported, and what
 * the caller's functions do not know is an error. The machine does not recurse; memory is bounded by the budget.
 */
#ifndef MSP_IO_PICKLE_H
#define MSP_IO_PICKLE_H

#include <stdbool.h>
#include <stdint.h>
#include "core/str.h"
#include "io/budget.h"
#include "msprobe/error.h"

typedef enum msp_pickle_kind {
    MSP_PICKLE_EMPTY = 0, /* no value at all */
    MSP_PICKLE_NONE,
    MSP_PICKLE_BOOL,
    MSP_PICKLE_INT,
    MSP_PICKLE_BIGINT, /* an integer beyond 64 bits: len little-endian bytes, or decimal digits, at text */
    MSP_PICKLE_FLOAT,
    MSP_PICKLE_TEXT, /* len bytes of UTF-8, not terminated, in the pickle or the arena */
    MSP_PICKLE_BYTES,
    MSP_PICKLE_TUPLE,  /* len items */
    MSP_PICKLE_LIST,   /* sequence */
    MSP_PICKLE_DICT,   /* sequence of key, value, key, value, ... in the order written, repeated keys included */
    MSP_PICKLE_OPAQUE, /* a value that is there but whose content does not matter: a set, a device, ... */
    MSP_PICKLE_OBJECT  /* what the caller's functions made: tag and object are theirs */
} msp_pickle_kind;

typedef struct msp_pickle_value msp_pickle_value;

typedef struct msp_pickle_sequence {
    msp_pickle_value *items;
    size_t count, cap;
} msp_pickle_sequence;

struct msp_pickle_value {
    uint8_t kind; /* msp_pickle_kind */
    uint8_t tag;  /* OBJECT: which */
    uint32_t len;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const char *text;
        const msp_pickle_value *items;
        msp_pickle_sequence *sequence;
        void *object;
    } as;
};

/*
 * What the caller decides. Messages need not say where: the machine adds the byte. *out may be any kind of value; what
 * it points to must live as long as the budget. args is a tuple.
 */
typedef struct msp_pickle_rules {
    msp_status (*global)(msp_pickle_value *out, msp_str module, msp_str name, void *payload, msp_error *err);
    msp_status (*call)(msp_pickle_value *out, msp_pickle_value callee, msp_pickle_value args, void *payload,
                       msp_error *err);
    msp_status (*persistent)(msp_pickle_value *out, msp_pickle_value id, void *payload, msp_error *err);
    void *payload;
} msp_pickle_rules;

/*
 * Run the pickle that begins at bytes until its STOP. *out is its value, *used (may be NULL) how many bytes it took.
 * Texts are views of bytes; containers stand in the budget's arena. rules, or any function in it, may be NULL: what
 * would need it is refused. Returns MSP_E_FORMAT, MSP_E_UNSUPPORTED (globals and opcodes that are refused),
 * MSP_E_LIMIT, MSP_E_NOMEM; messages begin with "pickle byte N: ".
 */
MSP_CHECK msp_status msp_pickle_read(msp_pickle_value *out, size_t *used, const void *bytes, size_t size,
                                     msp_budget *budget, const msp_pickle_rules *rules, msp_error *err);

/* A text value's view; empty for other kinds. */
static inline msp_str
msp_pickle_text(msp_pickle_value v)
{
    return v.kind == MSP_PICKLE_TEXT ? (msp_str){v.as.text, v.len} : (msp_str){0};
}

/* A new, empty list or dict. */
MSP_CHECK msp_status msp_pickle_new_sequence(msp_pickle_value *out, msp_pickle_kind kind, msp_budget *budget,
                                             msp_error *err);

/* Put n values at the end of a list or dict. */
MSP_CHECK msp_status msp_pickle_append(msp_pickle_sequence *s, const msp_pickle_value *values, size_t n,
                                       msp_budget *budget, msp_error *err);

#endif
