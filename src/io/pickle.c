/* pickle.c - the machine of pickle_machine.h, its table of opcodes, and those that remember, name and call. */
#include "core/alloc.h"
#include "io/pickle_machine.h"

enum { HIGHEST_PROTOCOL = 5 };

/* ---- stack, marks, memo ----------------------------------------------------------------------------------------- */

msp_status
msp_pickle_grow(machine *m, void **items, const void *first, size_t *cap, size_t need, size_t size)
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
store_memo(machine *m, uint64_t index)
{
    msp_status st = need_values(m, 1);

    if (st == MSP_OK && index >= m->memo_cap) {
        if (index > m->size) /* picklers count from 0, and every number takes at least a byte */
            return BAD("memo number %llu is larger than the pickle", (unsigned long long)index);
        st = msp_pickle_grow(m, (void **)&m->memo, m->first_memo, &m->memo_cap, index + 1, sizeof(value));
    }
    if (st == MSP_OK)
        m->memo[index] = m->stack[m->height - 1];
    return st;
}

static msp_status
recall_memo(machine *m, uint64_t index)
{
    if (index >= m->memo_cap || m->memo[index].kind == MSP_PICKLE_EMPTY)
        return BAD("nothing was remembered under number %llu", (unsigned long long)index);
    return push_value(m, m->memo[index]);
}

/* ---- opcodes: memo ---------------------------------------------------------------------------------------------- */

static msp_status
op_put(machine *m, int width)
{
    uint64_t index;
    msp_status st = take_number(m, &index, width);

    return st == MSP_OK ? store_memo(m, index) : st;
}

static msp_status
op_get(machine *m, int width)
{
    uint64_t index;
    msp_status st = take_number(m, &index, width);

    return st == MSP_OK ? recall_memo(m, index) : st;
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
    return is_put ? store_memo(m, index) : recall_memo(m, index);
}

static msp_status
op_memoize(machine *m, int arg)
{
    (void)arg;
    return store_memo(m, m->memoized++);
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
    return st == MSP_OK ? push_value(m, v) : st;
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
    msp_status st = need_values(m, 2);
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
call_value(machine *m, value callee, value args)
{
    value v = {0};
    msp_status st;

    if (args.kind != MSP_PICKLE_TUPLE)
        return BAD("the arguments of a call are no tuple");
    if (m->rules == NULL || m->rules->call == NULL)
        return msp_error_set(m->err, MSP_E_UNSUPPORTED, "a call is refused: only plain data is read here");
    st = m->rules->call(&v, callee, args, m->rules->payload, m->err);
    return st == MSP_OK ? push_value(m, v) : st;
}

/* REDUCE and NEWOBJ take callee and arguments, NEWOBJ_EX keyword arguments too, which nothing we know has. */
static msp_status
op_call(machine *m, int keywords)
{
    msp_status st = need_values(m, keywords ? 3 : 2);
    value args;

    if (st != MSP_OK)
        return st;
    if (keywords &&
        (m->stack[m->height - 1].kind != MSP_PICKLE_DICT || m->stack[m->height - 1].as.sequence->count != 0))
        return msp_error_set(m->err, MSP_E_UNSUPPORTED, "an object is made with keyword arguments");
    m->height -= (size_t)keywords;
    args = m->stack[--m->height];
    return call_value(m, m->stack[--m->height], args);
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
        st = msp_pickle_tuple(m, &args, items + class_on_stack, n - (size_t)class_on_stack);
    if (st != MSP_OK)
        return st;
    if (class_on_stack)
        return call_value(m, items[0], args);
    st = push_global(m, module, name);
    if (st != MSP_OK)
        return st;
    callee = m->stack[--m->height];
    return call_value(m, callee, args);
}

/* BUILD gives attributes to an object: metadata of a state_dict, the state of a numpy.dtype. None of it is needed. */
static msp_status
op_build(machine *m, int arg)
{
    msp_status st = need_values(m, 2);

    (void)arg;
    if (st == MSP_OK)
        m->height--;
    return st;
}

static msp_status
op_persistent(machine *m, int arg)
{
    value id, v = {0};
    msp_status st = need_values(m, 1);

    (void)arg;
    if (st != MSP_OK)
        return st;
    if (m->rules == NULL || m->rules->persistent == NULL)
        return msp_error_set(m->err, MSP_E_UNSUPPORTED, "a persistent id is refused: only plain data is read here");
    id = m->stack[--m->height];
    st = m->rules->persistent(&v, id, m->rules->payload, m->err);
    return st == MSP_OK ? push_value(m, v) : st;
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
    return need_values(m, 1);
}

static const struct opcode {
    msp_pickle_handler *run;
    int arg;
} opcodes[256] = {
    ['('] = {msp_pickle_op_mark, 0},
    [')'] = {msp_pickle_op_tuple_of, 0},
    ['.'] = {op_stop, 0},
    ['0'] = {msp_pickle_op_pop, 0},
    ['1'] = {msp_pickle_op_pop_mark, 0},
    ['2'] = {msp_pickle_op_dup, 0},
    ['B'] = {msp_pickle_op_bytes, 4},
    ['C'] = {msp_pickle_op_bytes, 1},
    ['F'] = {msp_pickle_op_float_line, 0},
    ['G'] = {msp_pickle_op_float, 0},
    ['I'] = {msp_pickle_op_decimal, 0},
    ['J'] = {msp_pickle_op_int, 4},
    ['K'] = {msp_pickle_op_int, 1},
    ['L'] = {msp_pickle_op_decimal, 1},
    ['M'] = {msp_pickle_op_int, 2},
    ['N'] = {msp_pickle_op_none, MSP_PICKLE_NONE},
    ['P'] = {op_refused, 0},
    ['Q'] = {op_persistent, 0},
    ['R'] = {op_call, 0},
    ['S'] = {msp_pickle_op_text_line, 1},
    ['T'] = {msp_pickle_op_text, 4},
    ['U'] = {msp_pickle_op_text, 1},
    ['V'] = {msp_pickle_op_text_line, 0},
    ['X'] = {msp_pickle_op_text, 4},
    [']'] = {msp_pickle_op_empty, MSP_PICKLE_LIST},
    ['a'] = {msp_pickle_op_extend_by, MSP_PICKLE_LIST},
    ['b'] = {op_build, 0},
    ['c'] = {op_global, 0},
    ['d'] = {msp_pickle_op_collect, MSP_PICKLE_DICT},
    ['e'] = {msp_pickle_op_extend, MSP_PICKLE_LIST},
    ['g'] = {op_memo_line, 0},
    ['h'] = {op_get, 1},
    ['i'] = {op_old_instance, 0},
    ['j'] = {op_get, 4},
    ['l'] = {msp_pickle_op_collect, MSP_PICKLE_LIST},
    ['o'] = {op_old_instance, 1},
    ['p'] = {op_memo_line, 1},
    ['q'] = {op_put, 1},
    ['r'] = {op_put, 4},
    ['s'] = {msp_pickle_op_extend_by, MSP_PICKLE_DICT},
    ['t'] = {msp_pickle_op_tuple, 0},
    ['u'] = {msp_pickle_op_extend, MSP_PICKLE_DICT},
    ['}'] = {msp_pickle_op_empty, MSP_PICKLE_DICT},
    [0x80] = {op_proto, 0},
    [0x81] = {op_call, 0},
    [0x82] = {op_refused, 1},
    [0x83] = {op_refused, 1},
    [0x84] = {op_refused, 1},
    [0x85] = {msp_pickle_op_tuple_of, 1},
    [0x86] = {msp_pickle_op_tuple_of, 2},
    [0x87] = {msp_pickle_op_tuple_of, 3},
    [0x88] = {msp_pickle_op_bool, 1},
    [0x89] = {msp_pickle_op_bool, 0},
    [0x8a] = {msp_pickle_op_long, 1},
    [0x8b] = {msp_pickle_op_long, 4},
    [0x8c] = {msp_pickle_op_text, 1},
    [0x8d] = {msp_pickle_op_text, 8},
    [0x8e] = {msp_pickle_op_bytes, 8},
    [0x8f] = {msp_pickle_op_none, MSP_PICKLE_OPAQUE},
    [0x90] = {msp_pickle_op_extend, MSP_PICKLE_OPAQUE},
    [0x91] = {msp_pickle_op_frozenset, 0},
    [0x92] = {op_call, 1},
    [0x93] = {op_stack_global, 0},
    [0x94] = {op_memoize, 0},
    [0x95] = {op_frame, 0},
    [0x96] = {msp_pickle_op_bytes, 8},
    [0x97] = {op_refused, 2},
    [0x98] = {op_refused, 2},
};

static msp_status
run_opcode(machine *m)
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

        st = run_opcode(&m);
        if (st != MSP_OK)
            msp_error_prefix(err, st, "pickle byte %zu: ", at);
    }
    *out = st == MSP_OK ? m.stack[m.height - 1] : (value){0};
    if (used != NULL)
        *used = m.at;
    machine_release(&m);
    return st;
}
