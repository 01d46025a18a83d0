/* match.c - see match.h. */
#include "compare/match.h"

#include "core/alloc.h"

/* ---- types --------------------------------------------------------------------------------------------------------
 */

static bool
is_one_of(msp_str s, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (msp_str_eq(s, msp_str_of(names[i])))
            return true;
    return false;
}

/* "int" for every integer type of either framework, and so on; 0 for what is no element type. */
static msp_dtype_class
class_of(msp_str s)
{
    return msp_dtype_class_of(msp_dtype_parse(s.p, s.len));
}

bool
msp_match_dtypes(msp_str npu, msp_str bench, bool cross_framework)
{
    static const char *const torch[] = {"torch.float16", "torch.float32", "torch.bfloat16"};
    static const char *const mindspore[] = {"Float16", "Float32", "BFloat16"};

    if (msp_str_eq(npu, bench))
        return true;
    if (cross_framework) {
        msp_dtype_class c = class_of(npu);

        return c != MSP_CLASS_NONE && c == class_of(bench);
    }
    return (is_one_of(npu, torch, 3) && is_one_of(bench, torch, 3)) ||
           (is_one_of(npu, mindspore, 3) && is_one_of(bench, mindspore, 3));
}

/* Types repeat in every row, so each pair of them is judged once. */
typedef struct dtype_gate {
    const msp_rows *npu, *bench;
    const msp_match_rule *rule;
    uint32_t last_npu, last_bench;
    bool last;
} dtype_gate;

static bool
gate_open(dtype_gate *g, const msp_row *n, const msp_row *b)
{
    if (g->rule->ignore_dtype)
        return true;
    if (n->dtype != g->last_npu || b->dtype != g->last_bench) {
        g->last_npu = n->dtype;
        g->last_bench = b->dtype;
        g->last = msp_match_dtypes(msp_row_dtype(g->npu, n), msp_row_dtype(g->bench, b), g->rule->cross_framework);
    }
    return g->last;
}

static dtype_gate
gate_of(const msp_rows *npu, const msp_rows *bench, const msp_match_rule *rule)
{
    return (dtype_gate){npu, bench, rule, UINT32_MAX, UINT32_MAX, false};
}

/* ---- keys ---------------------------------------------------------------------------------------------------------
 */

/*
 * Numbers for (name, shape), the same number for the same key on either side. A key's text is the name, a zero byte and
 * the shape, put together only once per key.
 */
typedef struct key_table {
    msp_map ids;
    msp_arena arena;
    msp_buf text;
} key_table;

enum { NO_KEY = -1 };

/* The key's number; a new one with add, else NO_KEY when nobody has it. NO_KEY - 1 when there is no memory. */
static int64_t
key_id(key_table *t, msp_str name, msp_str shape, bool add)
{
    msp_map_entry *e;
    char *copy;

    msp_buf_clear(&t->text);
    msp_buf_str(&t->text, name);
    msp_buf_char(&t->text, '\0');
    msp_buf_str(&t->text, shape);
    if (t->text.failed)
        return NO_KEY - 1;
    e = msp_map_get(&t->ids, msp_buf_view(&t->text));
    if (e != NULL || !add)
        return e != NULL ? e->value : NO_KEY;
    copy = msp_arena_text(&t->arena, t->text.p, t->text.len);
    if (copy == NULL)
        return NO_KEY - 1;
    e = msp_map_put(&t->ids, (msp_str){copy, t->text.len}, (int64_t)t->ids.count, NULL);
    return e == NULL ? NO_KEY - 1 : e->value;
}

static void
key_table_release(key_table *t)
{
    msp_map_release(&t->ids);
    msp_arena_release(&t->arena);
    msp_buf_release(&t->text);
}

/* Rows of one side that share a key, in order: head[key], then next[row]. */
typedef struct chains {
    uint32_t *head, *tail, *next;
} chains;

static bool
chains_init(chains *c, size_t keys, size_t rows)
{
    c->head = msp_alloc(keys, sizeof(uint32_t));
    c->tail = msp_alloc(keys, sizeof(uint32_t));
    c->next = msp_alloc(rows, sizeof(uint32_t));
    if (c->head == NULL || c->tail == NULL || c->next == NULL)
        return false;
    for (size_t i = 0; i < keys; i++)
        c->head[i] = MATCH_NONE;
    return true;
}

static void
chains_add(chains *c, uint32_t key, uint32_t row)
{
    c->next[row] = MATCH_NONE;
    if (c->head[key] == MATCH_NONE)
        c->head[key] = row;
    else
        c->next[c->tail[key]] = row;
    c->tail[key] = row;
}

static void
chains_release(chains *c)
{
    msp_free(c->head);
    msp_free(c->tail);
    msp_free(c->next);
    *c = (chains){0};
}

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory while matching rows");
}

static bool
match_init(msp_match *out, const msp_rows *npu)
{
    *out = (msp_match){0};
    out->bench = msp_alloc(npu->count, sizeof(uint32_t));
    if (out->bench == NULL)
        return false;
    out->count = npu->count;
    for (size_t i = 0; i < npu->count; i++)
        out->bench[i] = MATCH_NONE;
    return true;
}

/* Both counts at the end; with ignore_shape one bench row may have several partners. */
static msp_status
count_matches(msp_match *m, size_t bench_rows, msp_error *err)
{
    uint8_t *met = msp_alloc_zero(bench_rows, 1);
    size_t used = 0;

    if (met == NULL)
        return no_memory(err);
    m->matched = 0;
    for (size_t i = 0; i < m->count; i++)
        if (m->bench[i] != MATCH_NONE) {
            m->matched++;
            used += !met[m->bench[i]];
            met[m->bench[i]] = 1;
        }
    m->bench_only = bench_rows - used;
    msp_free(met);
    return MSP_OK;
}

void
msp_match_release(msp_match *m)
{
    msp_free(m->bench);
    *m = (msp_match){0};
}

/* ---- row by row ---------------------------------------------------------------------------------------------------
 */

/* The other spelling of a parameters_grad row: with ".0" where there is none, without where there is; else empty. */
static msp_str
other_grad_name(msp_str name, msp_buf *out)
{
    const msp_str word = MSP_STR(".parameters_grad");
    const char *at = msp_str_find(name, word);
    const char *after = at == NULL ? NULL : at + word.len, *end = name.p + name.len;

    msp_buf_clear(out);
    if (after == NULL || (after < end && *after != '.'))
        return (msp_str){NULL, 0};
    msp_buf_add(out, name.p, (size_t)(after - name.p));
    if (end - after >= 2 && after[1] == '0' && (end - after == 2 || after[2] == '.'))
        after += 2;
    else
        msp_buf_text(out, ".0");
    msp_buf_add(out, after, (size_t)(end - after));
    return msp_buf_view(out);
}

typedef struct matcher {
    msp_match *out;
    const msp_rows *npu, *bench;
    const msp_match_rule *rule;
    key_table keys;
    chains rows; /* of the bench side */
    dtype_gate gate;
    msp_buf name, other;
} matcher;

static msp_str
shape_in_key(const matcher *m, const msp_rows *side, const msp_row *r)
{
    return m->rule->ignore_shape ? (msp_str){NULL, 0} : msp_row_shape(side, r);
}

static bool
index_bench(matcher *m)
{
    /* keys are numbered as rows come, so there are never more keys than rows */
    if (!chains_init(&m->rows, m->bench->count, m->bench->count))
        return false;
    for (size_t i = 0; i < m->bench->count; i++) {
        const msp_row *r = &m->bench->rows[i];
        int64_t key = key_id(&m->keys, msp_row_name(r), shape_in_key(m, m->bench, r), true);

        if (key < 0)
            return false;
        chains_add(&m->rows, (uint32_t)key, (uint32_t)i);
    }
    return true;
}

/* Give NPU row i the first free bench row called name; false when there is no memory. */
static bool
try_name(matcher *m, size_t i, msp_str name)
{
    const msp_row *r = &m->npu->rows[i];
    int64_t key = key_id(&m->keys, name, shape_in_key(m, m->npu, r), false);
    uint32_t b;

    if (key < 0)
        return key == NO_KEY;
    b = m->rows.head[key];
    if (b == MATCH_NONE || !gate_open(&m->gate, r, &m->bench->rows[b]))
        return true;
    m->out->bench[i] = b;
    if (!m->rule->ignore_shape)
        m->rows.head[key] = m->rows.next[b];
    return true;
}

static bool
match_all(matcher *m)
{
    for (size_t i = 0; i < m->npu->count; i++) {
        const msp_row *r = &m->npu->rows[i];
        msp_str name = msp_row_name(r);

        msp_buf_clear(&m->name);
        if (m->rule->key != NULL)
            name = m->rule->key(m->npu, r, &m->name, m->rule->key_ctx);
        if (m->name.failed || (name.len > 0 && !try_name(m, i, name)))
            return false;
    }
    return true;
}

/* After everybody has met its exact namesake: the spelling of the other generation. */
static bool
match_grads(matcher *m)
{
    for (size_t i = 0; i < m->npu->count; i++) {
        const msp_row *r = &m->npu->rows[i];
        msp_str name = msp_row_name(r);

        if (m->out->bench[i] != MATCH_NONE || r->state != STATE_PARAMETERS_GRAD)
            continue;
        msp_buf_clear(&m->name);
        if (m->rule->key != NULL)
            name = m->rule->key(m->npu, r, &m->name, m->rule->key_ctx);
        name = other_grad_name(name, &m->other);
        if (m->name.failed || m->other.failed || (name.len > 0 && !try_name(m, i, name)))
            return false;
    }
    return true;
}

msp_status
msp_match_rows(msp_match *out, const msp_rows *npu, const msp_rows *bench, const msp_match_rule *rule, msp_error *err)
{
    matcher m = {.out = out, .npu = npu, .bench = bench, .rule = rule, .gate = gate_of(npu, bench, rule)};
    msp_status st = match_init(out, npu) && index_bench(&m) && match_all(&m) && match_grads(&m)
                        ? count_matches(out, bench->count, err)
                        : no_memory(err);

    key_table_release(&m.keys);
    chains_release(&m.rows);
    msp_buf_release(&m.name);
    msp_buf_release(&m.other);
    return st;
}

/* ---- fuzzy --------------------------------------------------------------------------------------------------------
 */

/* Where the first part that is exactly word begins, or NULL. */
static const char *
find_part(msp_str name, msp_str word)
{
    const char *end = name.p + name.len;

    for (msp_str rest = name;;) {
        const char *at = msp_str_find(rest, word), *after = at == NULL ? NULL : at + word.len;

        if (at == NULL)
            return NULL;
        if ((at == name.p || at[-1] == '.') && (after == end || *after == '.'))
            return at;
        rest = (msp_str){after, (size_t)(end - after)};
    }
}

msp_str
msp_match_fuzzy_name(msp_str name, msp_buf *out)
{
    const char *at = find_part(name, MSP_STR("forward")), *part;

    if (at == NULL)
        at = find_part(name, MSP_STR("backward"));
    if (at == NULL || at == name.p)
        return name;
    /* the part before it is the call number or, for modules, the class */
    part = at - 1;
    while (part > name.p && part[-1] != '.')
        part--;
    msp_buf_clear(out);
    msp_buf_add(out, name.p, (size_t)(part - name.p));
    msp_buf_add(out, at, (size_t)(name.p + name.len - at));
    return msp_buf_view(out);
}

/* One side of the walk: rows enter one by one; those before start are left behind. */
typedef struct queue {
    const msp_rows *side;
    uint32_t *keys; /* of every row */
    chains waiting; /* rows that have entered, by key; heads that were left behind are dropped when met */
    size_t start, end;
} queue;

static bool
queue_init(queue *q, const msp_rows *side, key_table *keys, msp_buf *scratch)
{
    q->side = side;
    q->keys = msp_alloc(side->count, sizeof(uint32_t));
    if (q->keys == NULL)
        return false;
    for (size_t i = 0; i < side->count; i++) {
        const msp_row *r = &side->rows[i];
        int64_t key = key_id(keys, msp_match_fuzzy_name(msp_row_name(r), scratch), msp_row_shape(side, r), true);

        if (key < 0 || scratch->failed)
            return false;
        q->keys[i] = (uint32_t)key;
    }
    return true;
}

static void
queue_push(queue *q)
{
    if (q->end < q->side->count) {
        chains_add(&q->waiting, q->keys[q->end], (uint32_t)q->end);
        q->end++;
    }
}

/* The first waiting row with this key that entered before limit, or MATCH_NONE. */
static uint32_t
queue_find(queue *q, uint32_t key, size_t limit)
{
    uint32_t *head = &q->waiting.head[key];

    while (*head != MATCH_NONE && *head < q->start)
        *head = q->waiting.next[*head];
    return *head != MATCH_NONE && *head < limit ? *head : MATCH_NONE;
}

static void
queue_release(queue *q)
{
    msp_free(q->keys);
    chains_release(&q->waiting);
}

/* The newest of either side against everybody who waits on the other. */
static bool
meet(queue *n, queue *b, size_t i, uint32_t *nr, uint32_t *br)
{
    if (i < n->end) {
        *nr = (uint32_t)i;
        *br = queue_find(b, n->keys[i], b->end);
        if (*br != MATCH_NONE)
            return true;
    }
    if (i < b->end) {
        *br = (uint32_t)i;
        *nr = queue_find(n, b->keys[i], n->end);
        return *nr != MATCH_NONE;
    }
    return false;
}

static void
walk_together(msp_match *out, queue *n, queue *b, dtype_gate *gate)
{
    size_t steps = n->side->count > b->side->count ? n->side->count : b->side->count;

    for (size_t i = 0; i < steps; i++) {
        uint32_t nr, br;

        queue_push(n);
        queue_push(b);
        if ((n->start == n->end) != (b->start == b->end))
            break;
        if (!meet(n, b, i, &nr, &br))
            continue;
        if (gate_open(gate, &n->side->rows[nr], &b->side->rows[br]))
            out->bench[nr] = br;
        n->start = nr + 1;
        b->start = br + 1;
    }
}

/* Whoever was left behind meets the k-th namesake that was left behind too. */
static msp_status
rescue(msp_match *out, queue *n, queue *b, size_t keys, dtype_gate *gate, msp_error *err)
{
    uint8_t *met = msp_alloc_zero(b->side->count, 1);
    chains left = {0};
    msp_status st = MSP_OK;

    if (met == NULL || !chains_init(&left, keys, b->side->count)) {
        st = no_memory(err);
        goto done;
    }
    for (size_t i = 0; i < out->count; i++)
        if (out->bench[i] != MATCH_NONE)
            met[out->bench[i]] = 1;
    for (size_t i = 0; i < b->side->count; i++)
        if (!met[i])
            chains_add(&left, b->keys[i], (uint32_t)i);
    for (size_t i = 0; i < out->count; i++) {
        uint32_t br = out->bench[i] == MATCH_NONE ? left.head[n->keys[i]] : MATCH_NONE;

        if (br == MATCH_NONE || !gate_open(gate, &n->side->rows[i], &b->side->rows[br]))
            continue;
        out->bench[i] = br;
        left.head[n->keys[i]] = left.next[br];
    }
done:
    msp_free(met);
    chains_release(&left);
    return st;
}

msp_status
msp_match_rows_fuzzy(msp_match *out, const msp_rows *npu, const msp_rows *bench, const msp_match_rule *rule,
                     msp_error *err)
{
    dtype_gate gate = gate_of(npu, bench, rule);
    queue n = {0}, b = {0};
    key_table keys = {0};
    msp_buf scratch = {0};
    msp_status st = MSP_OK;

    if (!match_init(out, npu) || !queue_init(&n, npu, &keys, &scratch) || !queue_init(&b, bench, &keys, &scratch) ||
        !chains_init(&n.waiting, keys.ids.count, npu->count) || !chains_init(&b.waiting, keys.ids.count, bench->count))
        st = no_memory(err);
    if (st == MSP_OK) {
        walk_together(out, &n, &b, &gate);
        st = rescue(out, &n, &b, keys.ids.count, &gate, err);
    }
    if (st == MSP_OK)
        st = count_matches(out, bench->count, err);
    queue_release(&n);
    queue_release(&b);
    key_table_release(&keys);
    msp_buf_release(&scratch);
    return st;
}
