/*
 * pickle.c - the machine: a stack of values, a stack of marks (heights of the first), a memo, and one table of opcodes.
 *
 * See pickle.h for what it promises. Stack and memo are plain arrays; growing them is charged to the budget, so a file
 * of a million opening brackets ends in MSP_E_LIMIT, not in gigabytes.
 */
#include "io/pickle.h"

#include "core/alloc.h"
#include "core/number.h"
#include "io/bytes.h"

enum { HIGHEST_PROTOCOL = 5, TEXT_MAX = 1 << 30 };

enum { FIRST_VALUES = 32, FIRST_MARKS = 16 };

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
typedef msp_status handler(machine *m, int arg);

#define BAD(...) msp_error_set(m->err, MSP_E_FORMAT, __VA_ARGS__)

/* ---- stack, marks, memo ----------------------------------------------------------------------------------------- */

/* Room for need items, zeroed where new. first is the array in the machine that the items may still stand in. */
static msp_status
grow(machine *m, void **items, const void *first, size_t *cap, size_t need, size_t size)
{
    size_t want = msp_budget_grown(*cap, need);
    msp_status st = msp_budget_spend(m->budget, want - *cap, size, m->err);
    void *p;

    if (st != MSP_OK)
        return st;
    p = msp_realloc(*items == first ? NULL : *items, want, size);
    if (p == NULL)
        return msp_error_set(m->err, MSP_E_NOMEM, "out of memory");
    if (*items == first)
        memcpy(p, first, *cap * size);
    memset((char *)p + *cap * size, 0, (want - *cap) * size);
    *items = p;
    *cap = want;
    return MSP_OK;
}

static msp_status
push(machine *m, value v)
{
    if (m->height == m->stack_cap) {
        msp_status st = grow(m, (void **)&m->stack, m->first_stack, &m->stack_cap, m->height + 1, sizeof(value));

        if (st != MSP_OK)
            return st;
    }
    m->stack[m->height++] = v;
    return MSP_OK;
}

/* How many values may be popped: those above the last mark. */
static size_t
available(const machine *m)
{
    return m->height - (m->nmarks > 0 ? m->marks[m->nmarks - 1] : 0);
}

static msp_status
need(machine *m, size_t n)
{
    return available(m) >= n ? MSP_OK : BAD("the opcode needs %zu values and the stack has %zu", n, available(m));
}

/* Remove the last mark; *out is the first of the *n values that stood above it, which stay in place until a push. */
static msp_status
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

static msp_status
remember(machine *m, uint64_t index)
{
    msp_status st = need(m, 1);

    if (st == MSP_OK && index >= m->memo_cap) {
        if (index > m->size) /* picklers count from 0, and every number takes at least a byte */
            return BAD("memo number %llu is larger than the pickle", (unsigned long long)index);
        st = grow(m, (void **)&m->memo, m->first_memo, &m->memo_cap, index + 1, sizeof(value));
    }
    if (st == MSP_OK)
        m->memo[index] = m->stack[m->height - 1];
    return st;
}

static msp_status
recall(machine *m, uint64_t index)
{
    if (index >= m->memo_cap || m->memo[index].kind == MSP_PICKLE_EMPTY)
        return BAD("nothing was remembered under number %llu", (unsigned long long)index);
    return push(m, m->memo[index]);
}

/* ---- operands --------------------------------------------------------------------------------------------------- */

static msp_status
take(machine *m, const unsigned char **out, uint64_t n)
{
    *out = NULL;
    if (n > m->size - m->at)
        return BAD("cut short: %llu more bytes are announced, %zu are there", (unsigned long long)n, m->size - m->at);
    *out = m->p + m->at;
    m->at += n;
    return MSP_OK;
}

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static msp_status
take_number(machine *m, uint64_t *out, int width)
{
    const unsigned char *p;
    msp_status st = take(m, &p, (uint64_t)width);

    *out = 0;
    for (int i = 0; st == MSP_OK && i < width; i++)
        *out |= (uint64_t)p[i] << 8 * i;
    return st;
}

/* Bytes whose number stands before them. */
static msp_status
take_counted(machine *m, msp_str *out, int width)
{
    const unsigned char *p;
    uint64_t n;
    msp_status st = take_number(m, &n, width);

    *out = (msp_str){0};
    if (st == MSP_OK && n > TEXT_MAX)
        return msp_error_set(m->err, MSP_E_LIMIT, "a text of %llu bytes", (unsigned long long)n);
    if (st == MSP_OK)
        st = take(m, &p, n);
    if (st == MSP_OK)
        *out = (msp_str){(const char *)p, n};
    return st;
}

/* A line, without its end. */
static msp_status
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

/* ---- opcodes: plain values -------------------------------------------------------------------------------------- */

static msp_status
push_int(machine *m, int64_t v)
{
    return push(m, (value){.kind = MSP_PICKLE_INT, .as.integer = v});
}

static msp_status
push_text(machine *m, msp_pickle_kind kind, msp_str s)
{
    return push(m, (value){.kind = (uint8_t)kind, .len = (uint32_t)s.len, .as.text = s.p});
}

static msp_status
op_none(machine *m, int kind)
{
    return push(m, (value){.kind = (uint8_t)kind});
}

static msp_status
op_bool(machine *m, int v)
{
    return push(m, (value){.kind = MSP_PICKLE_BOOL, .as.boolean = v});
}

static msp_status
op_int(machine *m, int width)
{
    uint64_t v;
    msp_status st = take_number(m, &v, width);

    if (st != MSP_OK)
        return st;
    return push_int(m, width == 4 ? (int32_t)v : (int64_t)v); /* only the four-byte form has a sign */
}

/* LONG1 and LONG4: two's complement of any length. */
static msp_status
op_long(machine *m, int width)
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
static msp_status
op_decimal(machine *m, int is_long)
{
    msp_str s;
    msp_status st = take_line(m, &s);

    if (st != MSP_OK)
        return st;
    if (is_long && msp_str_ends(s, MSP_STR("L")))
        s.len--;
    else if (msp_str_eq(s, MSP_STR("00")) || msp_str_eq(s, MSP_STR("01")))
        return op_bool(m, s.p[1] == '1');
    return push_decimal(m, s);
}

static msp_status
op_float_line(machine *m, int arg)
{
    value v = {.kind = MSP_PICKLE_FLOAT};
    msp_str s;
    msp_status st = take_line(m, &s);

    (void)arg;
    if (st != MSP_OK)
        return st;
    return msp_f64_parse(s, &v.as.real) ? push(m, v) : BAD("not a number");
}

static msp_status
op_float(machine *m, int arg)
{
    value v = {.kind = MSP_PICKLE_FLOAT};
    const unsigned char *p;
    msp_status st = take(m, &p, 8);
    uint64_t bits = 0;

    (void)arg;
    if (st != MSP_OK)
        return st;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i];
    memcpy(&v.as.real, &bits, sizeof(bits));
    return push(m, v);
}

static msp_status
op_text(machine *m, int width)
{
    msp_str s;
    msp_status st = take_counted(m, &s, width);

    return st == MSP_OK ? push_text(m, MSP_PICKLE_TEXT, s) : st;
}

static msp_status
op_bytes(machine *m, int width)
{
    msp_str s;
    msp_status st = take_counted(m, &s, width);

    return st == MSP_OK ? push_text(m, MSP_PICKLE_BYTES, s) : st;
}

/*
 * STRING and UNICODE, of protocol 0, as they stand. Names there are plain; one with an escape sequence keeps its
 * backslashes, which tells it from every other name, and that is all that is needed here.
 */
static msp_status
op_text_line(machine *m, int quoted)
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

static msp_status
op_mark(machine *m, int arg)
{
    (void)arg;
    if (m->nmarks == m->marks_cap) {
        msp_status st = grow(m, (void **)&m->marks, m->first_marks, &m->marks_cap, m->nmarks + 1, sizeof(*m->marks));

        if (st != MSP_OK)
            return st;
    }
    m->marks[m->nmarks++] = m->height;
    return MSP_OK;
}

static msp_status
op_pop(machine *m, int arg)
{
    (void)arg;
    if (available(m) == 0 && m->nmarks > 0) { /* a mark is a thing that can be popped */
        m->nmarks--;
        return MSP_OK;
    }
    if (m->height == 0)
        return BAD("nothing to pop");
    m->height--;
    return MSP_OK;
}

static msp_status
op_pop_mark(machine *m, int arg)
{
    value *items;
    size_t n;

    (void)arg;
    return pop_mark(m, &items, &n);
}

static msp_status
op_dup(machine *m, int arg)
{
    msp_status st = need(m, 1);

    (void)arg;
    return st == MSP_OK ? push(m, m->stack[m->height - 1]) : st;
}

static msp_status
make_tuple(machine *m, value *out, const value *items, size_t n)
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
static msp_status
op_tuple_of(machine *m, int n)
{
    msp_status st = need(m, (size_t)n);
    value t;

    if (st != MSP_OK)
        return st;
    m->height -= (size_t)n;
    st = make_tuple(m, &t, m->stack + m->height, (size_t)n);
    return st == MSP_OK ? push(m, t) : st;
}

static msp_status
op_tuple(machine *m, int arg)
{
    value t, *items;
    size_t n;
    msp_status st = pop_mark(m, &items, &n);

    (void)arg;
    if (st == MSP_OK)
        st = make_tuple(m, &t, items, n);
    return st == MSP_OK ? push(m, t) : st;
}

static msp_status
op_empty(machine *m, int kind)
{
    value v;
    msp_status st = msp_pickle_new_sequence(&v, (msp_pickle_kind)kind, m->budget, m->err);

    return st == MSP_OK ? push(m, v) : st;
}

/* LIST and DICT: all above the mark becomes one. */
static msp_status
op_collect(machine *m, int kind)
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
    return st == MSP_OK ? push(m, v) : st;
}

/* Add the n values at items, already popped, to the container that is now on top. */
static msp_status
extend_top(machine *m, msp_pickle_kind kind, const value *items, size_t n)
{
    msp_status st = need(m, 1);
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
static msp_status
op_extend_by(machine *m, int kind)
{
    size_t n = kind == MSP_PICKLE_LIST ? 1 : 2;
    msp_status st = need(m, n + 1);

    if (st != MSP_OK)
        return st;
    m->height -= n;
    return extend_top(m, (msp_pickle_kind)kind, m->stack + m->height, n);
}

/* APPENDS, SETITEMS and ADDITEMS: all above the mark. */
static msp_status
op_extend(machine *m, int kind)
{
    value *items;
    size_t n;
    msp_status st = pop_mark(m, &items, &n);

    return st == MSP_OK ? extend_top(m, (msp_pickle_kind)kind, items, n) : st;
}

static msp_status
op_frozenset(machine *m, int arg)
{
    msp_status st = op_pop_mark(m, arg);

    return st == MSP_OK ? op_none(m, MSP_PICKLE_OPAQUE) : st;
}

/* ---- opcodes: memo ---------------------------------------------------------------------------------------------- */

static msp_status
op_put(machine *m, int width)
{
    uint64_t index;
    msp_status st = take_number(m, &index, width);

    return st == MSP_OK ? remember(m, index) : st;
}

static msp_status
op_get(machine *m, int width)
{
    uint64_t index;
    msp_status st = take_number(m, &index, width);

    return st == MSP_OK ? recall(m, index) : st;
}

static msp_status
op_memo_line(machine *m, int is_put)
{
    unsigned long long index;
    msp_str s;
    msp_status st = take_line(m, &s);

    if (st != MSP_OK)
        return st;
    if (!msp_str_to_u64(s, &index))
        return BAD("not a memo number");
    return is_put ? remember(m, index) : recall(m, index);
}

static msp_status
op_memoize(machine *m, int arg)
{
    (void)arg;
    return remember(m, m->memoized++);
}

/* ---- opcodes: globals and calls --------------------------------------------------------------------------------- */

static msp_status
push_global(machine *m, msp_str module, msp_str name)
{
    value v = {0};
    msp_status st;

    if (m->rules == NULL || m->rules->global == NULL)
        return msp_error_set(m->err, MSP_E_UNSUPPORTED, "%.*s.%.*s is refused: only plain data is read here",
                             (int)module.len, module.p, (int)name.len, name.p);
    st = m->rules->global(&v, module, name, m->rules->payload, m->err);
    return st == MSP_OK ? push(m, v) : st;
}

static msp_status
op_global(machine *m, int arg)
{
    msp_str module, name = {0};
    msp_status st = take_line(m, &module);

    (void)arg;
    if (st == MSP_OK)
        st = take_line(m, &name);
    return st == MSP_OK ? push_global(m, module, name) : st;
}

static msp_status
op_stack_global(machine *m, int arg)
{
    msp_status st = need(m, 2);
    value module, name;

    (void)arg;
    if (st != MSP_OK)
        return st;
    name = m->stack[--m->height];
    module = m->stack[--m->height];
    if (name.kind != MSP_PICKLE_TEXT || module.kind != MSP_PICKLE_TEXT)
        return BAD("the name of a global is no text");
    return push_global(m, msp_pickle_text(module), msp_pickle_text(name));
}

static msp_status
call(machine *m, value callee, value args)
{
    value v = {0};
    msp_status st;

    if (args.kind != MSP_PICKLE_TUPLE)
        return BAD("the arguments of a call are no tuple");
    if (m->rules == NULL || m->rules->call == NULL)
        return msp_error_set(m->err, MSP_E_UNSUPPORTED, "a call is refused: only plain data is read here");
    st = m->rules->call(&v, callee, args, m->rules->payload, m->err);
    return st == MSP_OK ? push(m, v) : st;
}

/* REDUCE and NEWOBJ take callee and arguments, NEWOBJ_EX keyword arguments too, which nothing we know has. */
static msp_status
op_call(machine *m, int keywords)
{
    msp_status st = need(m, keywords ? 3 : 2);
    value args;

    if (st != MSP_OK)
        return st;
    if (keywords &&
        (m->stack[m->height - 1].kind != MSP_PICKLE_DICT || m->stack[m->height - 1].as.sequence->count != 0))
        return msp_error_set(m->err, MSP_E_UNSUPPORTED, "an object is made with keyword arguments");
    m->height -= (size_t)keywords;
    args = m->stack[--m->height];
    return call(m, m->stack[--m->height], args);
}

/* OBJ: mark, class, arguments. INST: mark, arguments, with the class named in two lines. */
static msp_status
op_old_instance(machine *m, int class_on_stack)
{
    msp_str module = {0}, name = {0};
    value args = {0}, callee, *items = NULL;
    msp_status st = MSP_OK;
    size_t n = 0;

    if (!class_on_stack && (st = take_line(m, &module)) == MSP_OK)
        st = take_line(m, &name);
    if (st == MSP_OK)
        st = pop_mark(m, &items, &n);
    if (st == MSP_OK && class_on_stack && n == 0)
        return BAD("an object without a class");
    if (st == MSP_OK)
        st = make_tuple(m, &args, items + class_on_stack, n - (size_t)class_on_stack);
    if (st != MSP_OK)
        return st;
    if (class_on_stack)
        return call(m, items[0], args);
    st = push_global(m, module, name);
    if (st != MSP_OK)
        return st;
    callee = m->stack[--m->height];
    return call(m, callee, args);
}

/* BUILD gives attributes to an object: metadata of a state_dict, the state of a numpy.dtype. None of it is needed. */
static msp_status
op_build(machine *m, int arg)
{
    msp_status st = need(m, 2);

    (void)arg;
    if (st == MSP_OK)
        m->height--;
    return st;
}

static msp_status
op_persistent(machine *m, int arg)
{
    value id, v = {0};
    msp_status st = need(m, 1);

    (void)arg;
    if (st != MSP_OK)
        return st;
    if (m->rules == NULL || m->rules->persistent == NULL)
        return msp_error_set(m->err, MSP_E_UNSUPPORTED, "a persistent id is refused: only plain data is read here");
    id = m->stack[--m->height];
    st = m->rules->persistent(&v, id, m->rules->payload, m->err);
    return st == MSP_OK ? push(m, v) : st;
}

static msp_status
op_refused(machine *m, int arg)
{
    static const char *const what[] = {"a text persistent id", "the extension registry", "an out-of-band buffer"};

    return msp_error_set(m->err, MSP_E_UNSUPPORTED, "%s is not read here", what[arg]);
}

/* ---- opcodes: the frame ----------------------------------------------------------------------------------------- */

static msp_status
op_proto(machine *m, int arg)
{
    uint64_t v;
    msp_status st = take_number(m, &v, 1);

    (void)arg;
    if (st == MSP_OK && v > HIGHEST_PROTOCOL)
        return msp_error_set(m->err, MSP_E_UNSUPPORTED, "protocol %u is newer than %d, the newest known", (unsigned)v,
                             HIGHEST_PROTOCOL);
    return st;
}

static msp_status
op_frame(machine *m, int arg)
{
    uint64_t n;
    msp_status st = take_number(m, &n, 8);

    (void)arg;
    if (st == MSP_OK && n > m->size - m->at)
        return BAD("cut short: a frame of %llu bytes, %zu are there", (unsigned long long)n, m->size - m->at);
    return st;
}

static msp_status
op_stop(machine *m, int arg)
{
    (void)arg;
    m->stopped = true;
    return need(m, 1);
}

static const struct opcode {
    handler *run;
    int arg;
} opcodes[256] = {
    ['('] = {op_mark, 0},
    [')'] = {op_tuple_of, 0},
    ['.'] = {op_stop, 0},
    ['0'] = {op_pop, 0},
    ['1'] = {op_pop_mark, 0},
    ['2'] = {op_dup, 0},
    ['B'] = {op_bytes, 4},
    ['C'] = {op_bytes, 1},
    ['F'] = {op_float_line, 0},
    ['G'] = {op_float, 0},
    ['I'] = {op_decimal, 0},
    ['J'] = {op_int, 4},
    ['K'] = {op_int, 1},
    ['L'] = {op_decimal, 1},
    ['M'] = {op_int, 2},
    ['N'] = {op_none, MSP_PICKLE_NONE},
    ['P'] = {op_refused, 0},
    ['Q'] = {op_persistent, 0},
    ['R'] = {op_call, 0},
    ['S'] = {op_text_line, 1},
    ['T'] = {op_text, 4},
    ['U'] = {op_text, 1},
    ['V'] = {op_text_line, 0},
    ['X'] = {op_text, 4},
    [']'] = {op_empty, MSP_PICKLE_LIST},
    ['a'] = {op_extend_by, MSP_PICKLE_LIST},
    ['b'] = {op_build, 0},
    ['c'] = {op_global, 0},
    ['d'] = {op_collect, MSP_PICKLE_DICT},
    ['e'] = {op_extend, MSP_PICKLE_LIST},
    ['g'] = {op_memo_line, 0},
    ['h'] = {op_get, 1},
    ['i'] = {op_old_instance, 0},
    ['j'] = {op_get, 4},
    ['l'] = {op_collect, MSP_PICKLE_LIST},
    ['o'] = {op_old_instance, 1},
    ['p'] = {op_memo_line, 1},
    ['q'] = {op_put, 1},
    ['r'] = {op_put, 4},
    ['s'] = {op_extend_by, MSP_PICKLE_DICT},
    ['t'] = {op_tuple, 0},
    ['u'] = {op_extend, MSP_PICKLE_DICT},
    ['}'] = {op_empty, MSP_PICKLE_DICT},
    [0x80] = {op_proto, 0},
    [0x81] = {op_call, 0},
    [0x82] = {op_refused, 1},
    [0x83] = {op_refused, 1},
    [0x84] = {op_refused, 1},
    [0x85] = {op_tuple_of, 1},
    [0x86] = {op_tuple_of, 2},
    [0x87] = {op_tuple_of, 3},
    [0x88] = {op_bool, 1},
    [0x89] = {op_bool, 0},
    [0x8a] = {op_long, 1},
    [0x8b] = {op_long, 4},
    [0x8c] = {op_text, 1},
    [0x8d] = {op_text, 8},
    [0x8e] = {op_bytes, 8},
    [0x8f] = {op_none, MSP_PICKLE_OPAQUE},
    [0x90] = {op_extend, MSP_PICKLE_OPAQUE},
    [0x91] = {op_frozenset, 0},
    [0x92] = {op_call, 1},
    [0x93] = {op_stack_global, 0},
    [0x94] = {op_memoize, 0},
    [0x95] = {op_frame, 0},
    [0x96] = {op_bytes, 8},
    [0x97] = {op_refused, 2},
    [0x98] = {op_refused, 2},
};

static msp_status
step(machine *m)
{
    const struct opcode *op;

    if (m->at >= m->size)
        return BAD("cut short: no STOP");
    op = &opcodes[m->p[m->at]];
    if (op->run == NULL)
        return BAD("0x%02x is no opcode", m->p[m->at]);
    m->at++;
    return op->run(m, op->arg);
}

static void
machine_init(machine *m, const void *bytes, size_t size, msp_budget *budget, const msp_pickle_rules *rules,
             msp_error *err)
{
    memset(m, 0, offsetof(machine, first_stack));
    memset(m->first_memo, 0, sizeof(m->first_memo)); /* an empty place is known by its zero */
    m->p = bytes;
    m->size = size;
    m->stack = m->first_stack;
    m->memo = m->first_memo;
    m->stack_cap = m->memo_cap = FIRST_VALUES;
    m->marks = m->first_marks;
    m->marks_cap = FIRST_MARKS;
    m->budget = budget;
    m->rules = rules;
    m->err = err;
}

static void
machine_release(machine *m)
{
    if (m->stack != m->first_stack)
        msp_free(m->stack);
    if (m->memo != m->first_memo)
        msp_free(m->memo);
    if (m->marks != m->first_marks)
        msp_free(m->marks);
}

msp_status
msp_pickle_read(msp_pickle_value *out, size_t *used, const void *bytes, size_t size, msp_budget *budget,
                const msp_pickle_rules *rules, msp_error *err)
{
    msp_status st = MSP_OK;
    machine m;

    machine_init(&m, bytes, size, budget, rules, err);
    while (st == MSP_OK && !m.stopped) {
        size_t at = m.at;

        st = step(&m);
        if (st != MSP_OK)
            msp_error_prefix(err, st, "pickle byte %zu: ", at);
    }
    *out = st == MSP_OK ? m.stack[m.height - 1] : (value){0};
    if (used != NULL)
        *used = m.at;
    machine_release(&m);
    return st;
}
