/* pickle_values.c - the opcodes that make values out of bytes, and containers out of values. */
#include "core/number.h"
#include "io/pickle_machine.h"

/* ---- opcodes: plain values -------------------------------------------------------------------------------------- */

static msp_status
push_int(machine *m, int64_t v)
{
    return push_value(m, (value){.kind = MSP_PICKLE_INT, .as.integer = v});
}

static msp_status
push_text(machine *m, msp_pickle_kind kind, msp_str s)
{
    return push_value(m, (value){.kind = (uint8_t)kind, .len = (uint32_t)s.len, .as.text = s.p});
}

msp_status
msp_pickle_op_none(machine *m, int kind)
{
    return push_value(m, (value){.kind = (uint8_t)kind});
}

msp_status
msp_pickle_op_bool(machine *m, int v)
{
    return push_value(m, (value){.kind = MSP_PICKLE_BOOL, .as.boolean = v});
}

msp_status
msp_pickle_op_int(machine *m, int width)
{
    uint64_t v;
    msp_status st = take_number(m, &v, width);

    if (st != MSP_OK)
        return st;
    return push_int(m, width == 4 ? (int32_t)v : (int64_t)v); /* only the four-byte form has a sign */
}

/* LONG1 and LONG4: two's complement of any length. */
msp_status
msp_pickle_op_long(machine *m, int width)
{
    uint64_t v = 0;
    msp_str s;
    msp_status st = take_counted(m, &s, width);

    if (st != MSP_OK)
        return st;
    if (s.len > 8)
        return push_text(m, MSP_PICKLE_BIGINT, s);
    for (size_t i = 0; i < s.len; i++)
        v |= (uint64_t)(unsigned char)s.p[i] << 8 * i;
    if (s.len > 0 && s.len < 8 && (s.p[s.len - 1] & 0x80))
        v |= UINT64_MAX << 8 * s.len;
    return push_int(m, (int64_t)v);
}

static size_t
count_digits(msp_str s)
{
    size_t n = 0;

    while (n < s.len && s.p[n] >= '0' && s.p[n] <= '9')
        n++;
    return n;
}

/* Decimal digits with an optional minus; those that 64 bits cannot hold stay text. */
static msp_status
push_decimal(machine *m, msp_str s)
{
    bool negative = s.len > 0 && s.p[0] == '-';
    msp_str digits = {s.p + negative, s.len - negative};
    unsigned long long v;

    if (digits.len == 0 || count_digits(digits) != digits.len)
        return BAD("not a number");
    if (!msp_str_to_u64(digits, &v) || v > (uint64_t)INT64_MAX + negative)
        return push_text(m, MSP_PICKLE_BIGINT, s);
    return push_int(m, negative ? (int64_t)(0 - v) : (int64_t)v);
}

/* INT and LONG: a decimal line, the latter with an L at its end; INT 00 and 01 are False and True. */
msp_status
msp_pickle_op_decimal(machine *m, int is_long)
{
    msp_str s;
    msp_status st = take_line(m, &s);

    if (st != MSP_OK)
        return st;
    if (is_long && msp_str_ends(s, MSP_STR("L")))
        s.len--;
    else if (msp_str_eq(s, MSP_STR("00")) || msp_str_eq(s, MSP_STR("01")))
        return msp_pickle_op_bool(m, s.p[1] == '1');
    return push_decimal(m, s);
}

msp_status
msp_pickle_op_float_line(machine *m, int arg)
{
    value v = {.kind = MSP_PICKLE_FLOAT};
    msp_str s;
    msp_status st = take_line(m, &s);

    (void)arg;
    if (st != MSP_OK)
        return st;
    return msp_f64_parse(s, &v.as.real) ? push_value(m, v) : BAD("not a number");
}

msp_status
msp_pickle_op_float(machine *m, int arg)
{
    value v = {.kind = MSP_PICKLE_FLOAT};
    const unsigned char *p;
    msp_status st = take_bytes(m, &p, 8);
    uint64_t bits = 0;

    (void)arg;
    if (st != MSP_OK)
        return st;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i];
    memcpy(&v.as.real, &bits, sizeof(bits));
    return push_value(m, v);
}

msp_status
msp_pickle_op_text(machine *m, int width)
{
    msp_str s;
    msp_status st = take_counted(m, &s, width);

    return st == MSP_OK ? push_text(m, MSP_PICKLE_TEXT, s) : st;
}

msp_status
msp_pickle_op_bytes(machine *m, int width)
{
    msp_str s;
    msp_status st = take_counted(m, &s, width);

    return st == MSP_OK ? push_text(m, MSP_PICKLE_BYTES, s) : st;
}

/*
 * STRING and UNICODE, of protocol 0, as they stand. Names there are plain; one with an escape sequence keeps its
 * backslashes, which tells it from every other name, and that is all that is needed here.
 */
msp_status
msp_pickle_op_text_line(machine *m, int quoted)
{
    msp_str s;
    msp_status st = take_line(m, &s);

    if (st != MSP_OK)
        return st;
    if (quoted) {
        if (s.len < 2 || (s.p[0] != '\'' && s.p[0] != '"') || s.p[s.len - 1] != s.p[0])
            return BAD("a string without quotes");
        s = (msp_str){s.p + 1, s.len - 2};
    }
    return push_text(m, MSP_PICKLE_TEXT, s);
}

/* ---- opcodes: containers ---------------------------------------------------------------------------------------- */

msp_status
msp_pickle_new_sequence(msp_pickle_value *out, msp_pickle_kind kind, msp_budget *budget, msp_error *err)
{
    void *p;
    msp_status st = msp_budget_alloc(&p, budget, 1, sizeof(msp_pickle_sequence), err);

    *out = (value){.kind = (uint8_t)kind, .as.sequence = p};
    return st;
}

msp_status
msp_pickle_append(msp_pickle_sequence *s, const msp_pickle_value *values, size_t n, msp_budget *budget, msp_error *err)
{
    if (s->count + n > s->cap) {
        size_t cap = msp_budget_grown(s->cap, s->count + n);
        void *p;
        msp_status st = msp_budget_alloc(&p, budget, cap, sizeof(value), err);

        if (st != MSP_OK)
            return st;
        if (s->count > 0)
            memcpy(p, s->items, s->count * sizeof(value));
        s->items = p;
        s->cap = cap;
    }
    if (n > 0)
        memcpy(s->items + s->count, values, n * sizeof(value));
    s->count += n;
    return MSP_OK;
}

msp_status
msp_pickle_op_mark(machine *m, int arg)
{
    (void)arg;
    if (m->nmarks == m->marks_cap) {
        msp_status st =
            msp_pickle_grow(m, (void **)&m->marks, m->first_marks, &m->marks_cap, m->nmarks + 1, sizeof(*m->marks));

        if (st != MSP_OK)
            return st;
    }
    m->marks[m->nmarks++] = m->height;
    return MSP_OK;
}

msp_status
msp_pickle_op_pop(machine *m, int arg)
{
    (void)arg;
    if (available_values(m) == 0 && m->nmarks > 0) { /* a mark is a thing that can be popped */
        m->nmarks--;
        return MSP_OK;
    }
    if (m->height == 0)
        return BAD("nothing to pop");
    m->height--;
    return MSP_OK;
}

msp_status
msp_pickle_op_pop_mark(machine *m, int arg)
{
    value *items;
    size_t n;

    (void)arg;
    return pop_mark(m, &items, &n);
}

msp_status
msp_pickle_op_dup(machine *m, int arg)
{
    msp_status st = need_values(m, 1);

    (void)arg;
    return st == MSP_OK ? push_value(m, m->stack[m->height - 1]) : st;
}

msp_status
msp_pickle_tuple(machine *m, value *out, const value *items, size_t n)
{
    msp_status st;
    void *p = NULL;

    *out = (value){.kind = MSP_PICKLE_TUPLE, .len = (uint32_t)n};
    if (n == 0)
        return MSP_OK;
    if (n > UINT32_MAX)
        return msp_error_set(m->err, MSP_E_LIMIT, "a tuple of %zu values", n);
    st = msp_budget_alloc(&p, m->budget, n, sizeof(value), m->err);
    if (st == MSP_OK)
        memcpy(p, items, n * sizeof(value));
    out->as.items = p;
    return st;
}

/* TUPLE1 to TUPLE3 and the empty tuple. */
msp_status
msp_pickle_op_tuple_of(machine *m, int n)
{
    msp_status st = need_values(m, (size_t)n);
    value t;

    if (st != MSP_OK)
        return st;
    m->height -= (size_t)n;
    st = msp_pickle_tuple(m, &t, m->stack + m->height, (size_t)n);
    return st == MSP_OK ? push_value(m, t) : st;
}

msp_status
msp_pickle_op_tuple(machine *m, int arg)
{
    value t, *items;
    size_t n;
    msp_status st = pop_mark(m, &items, &n);

    (void)arg;
    if (st == MSP_OK)
        st = msp_pickle_tuple(m, &t, items, n);
    return st == MSP_OK ? push_value(m, t) : st;
}

msp_status
msp_pickle_op_empty(machine *m, int kind)
{
    value v;
    msp_status st = msp_pickle_new_sequence(&v, (msp_pickle_kind)kind, m->budget, m->err);

    return st == MSP_OK ? push_value(m, v) : st;
}

/* LIST and DICT: all above the mark becomes one. */
msp_status
msp_pickle_op_collect(machine *m, int kind)
{
    value v, *items;
    size_t n;
    msp_status st = pop_mark(m, &items, &n);

    if (st == MSP_OK && kind == MSP_PICKLE_DICT && n % 2 != 0)
        return BAD("a dict with a key and no value");
    if (st == MSP_OK)
        st = msp_pickle_new_sequence(&v, (msp_pickle_kind)kind, m->budget, m->err);
    if (st == MSP_OK)
        st = msp_pickle_append(v.as.sequence, items, n, m->budget, m->err);
    return st == MSP_OK ? push_value(m, v) : st;
}

/* Add the n values at items, already popped, to the container that is now on top. */
static msp_status
extend_top(machine *m, msp_pickle_kind kind, const value *items, size_t n)
{
    msp_status st = need_values(m, 1);
    value top;

    if (st != MSP_OK)
        return st;
    top = m->stack[m->height - 1];
    if (top.kind == MSP_PICKLE_OPAQUE)
        return MSP_OK;
    if (top.kind != kind)
        return BAD("values are added to something that is no %s", kind == MSP_PICKLE_LIST   ? "list"
                                                                  : kind == MSP_PICKLE_DICT ? "dict"
                                                                                            : "set");
    if (kind == MSP_PICKLE_DICT && n % 2 != 0)
        return BAD("a dict with a key and no value");
    return msp_pickle_append(top.as.sequence, items, n, m->budget, m->err);
}

/* APPEND and SETITEM: n values, then the container. */
msp_status
msp_pickle_op_extend_by(machine *m, int kind)
{
    size_t n = kind == MSP_PICKLE_LIST ? 1 : 2;
    msp_status st = need_values(m, n + 1);

    if (st != MSP_OK)
        return st;
    m->height -= n;
    return extend_top(m, (msp_pickle_kind)kind, m->stack + m->height, n);
}

/* APPENDS, SETITEMS and ADDITEMS: all above the mark. */
msp_status
msp_pickle_op_extend(machine *m, int kind)
{
    value *items;
    size_t n;
    msp_status st = pop_mark(m, &items, &n);

    return st == MSP_OK ? extend_top(m, (msp_pickle_kind)kind, items, n) : st;
}

msp_status
msp_pickle_op_frozenset(machine *m, int arg)
{
    msp_status st = msp_pickle_op_pop_mark(m, arg);

    return st == MSP_OK ? msp_pickle_op_none(m, MSP_PICKLE_OPAQUE) : st;
}
