/*
 * pickle_machine.h - what the opcodes of a pickle work on: a stack of values, a stack of marks (heights of the first),
 * a memo, and the bytes that follow an opcode.
 *
 * Stack and memo are plain arrays; growing them is charged to the budget, so a file of a million opening brackets ends
 * in MSP_E_LIMIT, not in gigabytes.
 */
#ifndef MSP_IO_PICKLE_MACHINE_H
#define MSP_IO_PICKLE_MACHINE_H

#include "io/pickle.h"

enum { TEXT_MAX = 1 << 30, FIRST_VALUES = 32, FIRST_MARKS = 16 };

typedef struct machine {
    const unsigned char *p;
    size_t size, at;
    msp_pickle_value *stack, *memo;
    size_t height, stack_cap;
    size_t memo_cap;
    size_t memoized; /* values MEMOIZE has numbered */
    size_t *marks;
    size_t nmarks, marks_cap;
    msp_budget *budget;
    const msp_pickle_rules *rules;
    bool stopped;
    msp_error *err;
    msp_pickle_value first_stack[FIRST_VALUES], first_memo[FIRST_VALUES]; /* enough for a file of one tensor */
    size_t first_marks[FIRST_MARKS];
} machine;

typedef msp_pickle_value value;
typedef msp_status msp_pickle_handler(machine *m, int arg);

#define BAD(...) msp_error_set(m->err, MSP_E_FORMAT, __VA_ARGS__)

/* pickle_values.c: the opcodes that make values out of bytes, and containers out of values. */
msp_pickle_handler msp_pickle_op_none, msp_pickle_op_bool, msp_pickle_op_int, msp_pickle_op_long, msp_pickle_op_decimal,
    msp_pickle_op_float_line, msp_pickle_op_float, msp_pickle_op_text, msp_pickle_op_bytes, msp_pickle_op_text_line,
    msp_pickle_op_mark, msp_pickle_op_pop, msp_pickle_op_pop_mark, msp_pickle_op_dup, msp_pickle_op_tuple_of,
    msp_pickle_op_tuple, msp_pickle_op_empty, msp_pickle_op_collect, msp_pickle_op_extend_by, msp_pickle_op_extend,
    msp_pickle_op_frozenset;

/* A tuple of these values, as they are. */
MSP_CHECK msp_status msp_pickle_tuple(machine *m, value *out, const value *items, size_t n);

/* ---- stack and marks -------------------------------------------------------------------------------------------- */

/* Room for need items, zeroed where new. first is the array in the machine that the items may still stand in. */
MSP_CHECK msp_status msp_pickle_grow(machine *m, void **items, const void *first, size_t *cap, size_t need,
                                     size_t size);

static inline msp_status
push_value(machine *m, value v)
{
    if (m->height == m->stack_cap) {
        msp_status st =
            msp_pickle_grow(m, (void **)&m->stack, m->first_stack, &m->stack_cap, m->height + 1, sizeof(value));

        if (st != MSP_OK)
            return st;
    }
    m->stack[m->height++] = v;
    return MSP_OK;
}

/* How many values may be popped: those above the last mark. */
static inline size_t
available_values(const machine *m)
{
    return m->height - (m->nmarks > 0 ? m->marks[m->nmarks - 1] : 0);
}

static inline msp_status
need_values(machine *m, size_t n)
{
    return available_values(m) >= n ? MSP_OK
                                    : BAD("the opcode needs %zu values and the stack has %zu", n, available_values(m));
}

/* Remove the last mark; *out is the first of the *n values that stood above it, which stay in place until a push. */
static inline msp_status
pop_mark(machine *m, value **out, size_t *n)
{
    *out = NULL;
    *n = 0;
    if (m->nmarks == 0)
        return BAD("the opcode needs a mark and there is none");
    *n = m->height - m->marks[--m->nmarks];
    m->height -= *n;
    *out = m->stack + m->height;
    return MSP_OK;
}

/* ---- operands --------------------------------------------------------------------------------------------------- */

static inline msp_status
take_bytes(machine *m, const unsigned char **out, uint64_t n)
{
    *out = NULL;
    if (n > m->size - m->at)
        return BAD("cut short: %llu more bytes are announced, %zu are there", (unsigned long long)n, m->size - m->at);
    *out = m->p + m->at;
    m->at += n;
    return MSP_OK;
}

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static inline msp_status
take_number(machine *m, uint64_t *out, int width)
{
    const unsigned char *p;
    msp_status st = take_bytes(m, &p, (uint64_t)width);

    *out = 0;
    for (int i = 0; st == MSP_OK && i < width; i++)
        *out |= (uint64_t)p[i] << 8 * i;
    return st;
}

/* Bytes whose number stands before them. */
static inline msp_status
take_counted(machine *m, msp_str *out, int width)
{
    const unsigned char *p;
    uint64_t n;
    msp_status st = take_number(m, &n, width);

    *out = (msp_str){0};
    if (st == MSP_OK && n > TEXT_MAX)
        return msp_error_set(m->err, MSP_E_LIMIT, "a text of %llu bytes", (unsigned long long)n);
    if (st == MSP_OK)
        st = take_bytes(m, &p, n);
    if (st == MSP_OK)
        *out = (msp_str){(const char *)p, n};
    return st;
}

/* A line, without its end. */
static inline msp_status
take_line(machine *m, msp_str *out)
{
    const char *start = (const char *)m->p + m->at;
    const char *end = m->at < m->size ? memchr(start, '\n', m->size - m->at) : NULL;

    *out = (msp_str){0};
    if (end == NULL || end - start > TEXT_MAX)
        return BAD("cut short: a line without an end");
    *out = (msp_str){start, (size_t)(end - start)};
    m->at += out->len + 1;
    return MSP_OK;
}

#endif
