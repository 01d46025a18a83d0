/* match.c - see match.h. */
#include "compare/match/match.h"

#include "core/alloc.h"

/* ---- types ------------------------------------------------------------------------------------------------------- */

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
    return (MSP_STR_IS_ONE_OF(npu, torch) && MSP_STR_IS_ONE_OF(bench, torch)) ||
           (MSP_STR_IS_ONE_OF(npu, mindspore) && MSP_STR_IS_ONE_OF(bench, mindspore));
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

/* ---- keys -------------------------------------------------------------------------------------------------------- */

typedef struct key {
    msp_str name, shape;
} key;

/* Numbers for keys, in the order in which they came. Texts are borrowed, and must outlive the table. */
typedef struct key_table {
    key *keys;
    uint64_t *hashes;
    size_t count, cap;
    uint32_t *slots; /* number + 1, 0: free */
    size_t nslots;
} key_table;

static uint64_t
key_hash(key k)
{
    return msp_str_hash(k.name) ^ (msp_str_hash(k.shape) * 0x9E3779B97F4A7C15u);
}

static bool
key_eq(key a, key b)
{
    return msp_str_eq(a.name, b.name) && msp_str_eq(a.shape, b.shape);
}

/* Room for n keys, so that adding them cannot fail. */
static bool
key_table_init(key_table *t, size_t n)
{
    *t = (key_table){.cap = n, .nslots = 16};
    while (t->nslots / 2 < n)
        t->nslots *= 2;
    t->keys = msp_alloc(n, sizeof(*t->keys));
    t->hashes = msp_alloc(n, sizeof(*t->hashes));
    t->slots = msp_alloc_zero(t->nslots, sizeof(*t->slots));
    return t->keys != NULL && t->hashes != NULL && t->slots != NULL;
}

static void
key_table_release(key_table *t)
{
    msp_free(t->keys);
    msp_free(t->hashes);
    msp_free(t->slots);
    *t = (key_table){0};
}

static uint32_t *
key_slot(const key_table *t, key k, uint64_t hash)
{
    for (size_t i = hash & (t->nslots - 1);; i = (i + 1) & (t->nslots - 1)) {
        uint32_t *slot = &t->slots[i];

        if (*slot == 0 || (t->hashes[*slot - 1] == hash && key_eq(t->keys[*slot - 1], k)))
            return slot;
    }
}

/* The key's number, or MATCH_NONE. */
static uint32_t
key_find(const key_table *t, key k)
{
    return *key_slot(t, k, key_hash(k)) - 1; /* free: 0 - 1 is MATCH_NONE */
}

/* The key's number, a new one when it was not there; *added says which. */
static uint32_t
key_add(key_table *t, key k, bool *added)
{
    uint64_t hash = key_hash(k);
    uint32_t *slot = key_slot(t, k, hash);

    *added = *slot == 0;
    if (*added) {
        t->keys[t->count] = k;
        t->hashes[t->count] = hash;
        *slot = (uint32_t)++t->count;
    }
    return *slot - 1;
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
chains_add(chains *c, uint32_t k, uint32_t row)
{
    c->next[row] = MATCH_NONE;
    if (c->head[k] == MATCH_NONE)
        c->head[k] = row;
    else
        c->next[c->tail[k]] = row;
    c->tail[k] = row;
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

/* Both counts at the end; where names are mapped one bench row may have several partners. */
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

/* ---- row by row -------------------------------------------------------------------------------------------------- */

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
    size_t done; /* rows at the beginning of both sides that have met already */
    key_table keys;
    chains rows; /* of the bench side */
    dtype_gate gate;
    msp_buf name, other;
} matcher;

static key
key_of(const matcher *m, const msp_rows *side, const msp_row *r, msp_str name)
{
    return (key){name, m->rule->ignore_shape ? (msp_str){NULL, 0} : msp_row_shape(side, r)};
}

/* Most dumps begin alike: as long as row meets row there is nothing to look up. */
static void
match_beginning(matcher *m)
{
    size_t n = m->npu->count < m->bench->count ? m->npu->count : m->bench->count;

    if (m->rule->key != NULL || m->rule->ignore_shape)
        return;
    for (size_t i = 0; i < n; i++) {
        const msp_row *r = &m->npu->rows[i], *b = &m->bench->rows[i];

        if (!key_eq(key_of(m, m->npu, r, msp_row_name(r)), key_of(m, m->bench, b, msp_row_name(b))))
            return;
        if (gate_open(&m->gate, r, b))
            m->out->bench[i] = (uint32_t)i;
        m->done = i + 1;
    }
}

static bool
index_bench(matcher *m)
{
    size_t n = m->bench->count - m->done;
    bool added;

    if (!key_table_init(&m->keys, n) || !chains_init(&m->rows, n, m->bench->count))
        return false;
    for (size_t i = m->done; i < m->bench->count; i++) {
        const msp_row *r = &m->bench->rows[i];

        chains_add(&m->rows, key_add(&m->keys, key_of(m, m->bench, r, msp_row_name(r)), &added), (uint32_t)i);
    }
    return true;
}

/*
 * Give NPU row i the first free bench row called name. Where names are mapped two calls can have one partner (mint.add
 * and ops.add are both torch.add), and both are compared with it, as with 8.3.
 */
static void
try_name(matcher *m, size_t i, msp_str name)
{
    const msp_row *r = &m->npu->rows[i];
    uint32_t k = key_find(&m->keys, key_of(m, m->npu, r, name));
    uint32_t b = k == MATCH_NONE ? MATCH_NONE : m->rows.head[k];

    if (b == MATCH_NONE || !gate_open(&m->gate, r, &m->bench->rows[b]))
        return;
    m->out->bench[i] = b;
    if (m->rule->key == NULL)
        m->rows.head[k] = m->rows.next[b];
}

/* The name under which NPU row i is looked up; false when there is no memory. */
static bool
looked_up_name(matcher *m, size_t i, msp_str *out)
{
    const msp_row *r = &m->npu->rows[i];

    msp_buf_clear(&m->name);
    *out = m->rule->key == NULL ? msp_row_name(r) : m->rule->key(m->npu, r, &m->name, m->rule->key_ctx);
    return !m->name.failed;
}

static bool
match_all(matcher *m)
{
    msp_str name;

    for (size_t i = m->done; i < m->npu->count; i++) {
        if (!looked_up_name(m, i, &name))
            return false;
        if (name.len > 0)
            try_name(m, i, name);
    }
    return true;
}

/* After everybody has met its exact namesake: the spelling of the other generation. */
static bool
match_grads(matcher *m)
{
    msp_str name;

    for (size_t i = m->done; i < m->npu->count; i++) {
        if (m->out->bench[i] != MATCH_NONE || m->npu->rows[i].state != STATE_PARAMETERS_GRAD)
            continue;
        if (!looked_up_name(m, i, &name))
            return false;
        name = other_grad_name(name, &m->other);
        if (m->other.failed)
            return false;
        if (name.len > 0)
            try_name(m, i, name);
    }
    return true;
}

msp_status
msp_match_rows(msp_match *out, const msp_rows *npu, const msp_rows *bench, const msp_match_rule *rule, msp_error *err)
{
    matcher m = {.out = out, .npu = npu, .bench = bench, .rule = rule, .gate = gate_of(npu, bench, rule)};
    msp_status st = MSP_OK;

    if (!match_init(out, npu))
        return no_memory(err);
    match_beginning(&m);
    if (m.done < npu->count && !(index_bench(&m) && match_all(&m) && match_grads(&m)))
        st = no_memory(err);
    if (st == MSP_OK)
        st = count_matches(out, bench->count, err);
    key_table_release(&m.keys);
    chains_release(&m.rows);
    msp_buf_release(&m.name);
    msp_buf_release(&m.other);
    return st;
}

/* ---- fuzzy ------------------------------------------------------------------------------------------------------- */

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
    const msp_rows *side; /* NULL: whatever has the keys */
    const uint32_t *keys; /* of every row */
    size_t count;         /* rows in all */
    uint32_t *own_keys;   /* keys, where they are the queue's own */
    chains waiting;       /* rows that have entered, by key; heads that were left behind are dropped when met */
    size_t start, end;
} queue;

/* Names without their number are texts of their own; one for each key is kept. */
typedef struct fuzzy_keys {
    key_table table;
    msp_arena names;
    msp_buf scratch;
} fuzzy_keys;

static bool
queue_init(queue *q, const msp_rows *side, fuzzy_keys *keys)
{
    q->side = side;
    q->count = side->count;
    q->keys = q->own_keys = msp_alloc(side->count, sizeof(uint32_t));
    if (q->keys == NULL)
        return false;
    for (size_t i = 0; i < side->count; i++) {
        const msp_row *r = &side->rows[i];
        key k = {msp_match_fuzzy_name(msp_row_name(r), &keys->scratch), msp_row_shape(side, r)};
        bool added;

        q->own_keys[i] = key_add(&keys->table, k, &added);
        if (added)
            keys->table.keys[q->keys[i]].name.p = msp_arena_text(&keys->names, k.name.p, k.name.len);
        if (keys->scratch.failed || keys->table.keys[q->keys[i]].name.p == NULL)
            return false;
    }
    return true;
}

static void
queue_push(queue *q)
{
    if (q->end < q->count) {
        chains_add(&q->waiting, q->keys[q->end], (uint32_t)q->end);
        q->end++;
    }
}

/* The first waiting row with this key that entered before limit, or MATCH_NONE. */
static uint32_t
queue_find(queue *q, uint32_t k, size_t limit)
{
    uint32_t *head = &q->waiting.head[k];

    while (*head != MATCH_NONE && *head < q->start)
        *head = q->waiting.next[*head];
    return *head != MATCH_NONE && *head < limit ? *head : MATCH_NONE;
}

static void
queue_release(queue *q)
{
    msp_free(q->own_keys);
    chains_release(&q->waiting);
}

/* The newest of either side against everybody who waits on the other. */
static bool
meet_newest(queue *n, queue *b, size_t i, uint32_t *nr, uint32_t *br)
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
        if (!meet_newest(n, b, i, &nr, &br))
            continue;
        if (gate_open(gate, &n->side->rows[nr], &b->side->rows[br]))
            out->bench[nr] = br;
        n->start = nr + 1;
        b->start = br + 1;
    }
}

/* Whoever was left behind meets the k-th namesake that was left behind too. */
static msp_status
match_left_behind(msp_match *out, queue *n, queue *b, size_t keys, dtype_gate *gate, msp_error *err)
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
    fuzzy_keys keys = {0};
    msp_status st = MSP_OK;

    if (!match_init(out, npu) || !key_table_init(&keys.table, npu->count + bench->count) ||
        !queue_init(&n, npu, &keys) || !queue_init(&b, bench, &keys) ||
        !chains_init(&n.waiting, keys.table.count, npu->count) ||
        !chains_init(&b.waiting, keys.table.count, bench->count))
        st = no_memory(err);
    if (st == MSP_OK) {
        walk_together(out, &n, &b, &gate);
        st = match_left_behind(out, &n, &b, keys.table.count, &gate, err);
    }
    if (st == MSP_OK)
        st = count_matches(out, bench->count, err);
    queue_release(&n);
    queue_release(&b);
    key_table_release(&keys.table);
    msp_arena_release(&keys.names);
    msp_buf_release(&keys.scratch);
    return st;
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* As meet_newest(), but where several wait under one key the oldest of both sides go together. */
static bool
meet_oldest(queue *n, queue *b, size_t i, uint32_t *nr, uint32_t *br)
{
    uint32_t newest[2] = {i < n->end ? n->keys[i] : MATCH_NONE, i < b->end ? b->keys[i] : MATCH_NONE};

    for (int side = 0; side < 2; side++) {
        if (newest[side] == MATCH_NONE)
            continue;
        *nr = queue_find(n, newest[side], n->end);
        *br = queue_find(b, newest[side], b->end);
        if (*nr != MATCH_NONE && *br != MATCH_NONE)
            return true;
    }
    return false;
}

msp_status
msp_match_walk(uint32_t *partner, const msp_match_sequence *npu, const msp_match_sequence *bench, size_t nkeys,
               msp_error *err)
{
    queue n = {.keys = npu->keys, .count = npu->count}, b = {.keys = bench->keys, .count = bench->count};
    size_t steps = n.count > b.count ? n.count : b.count;
    msp_status st = MSP_OK;

    for (size_t i = 0; i < n.count; i++)
        partner[i] = MATCH_NONE;
    if (!chains_init(&n.waiting, nkeys, n.count) || !chains_init(&b.waiting, nkeys, b.count))
        st = no_memory(err);
    for (size_t i = 0; i < steps && st == MSP_OK; i++) {
        uint32_t nr, br;

        queue_push(&n);
        queue_push(&b);
        if (!meet_oldest(&n, &b, i, &nr, &br))
            continue;
        partner[nr] = br;
        n.start = nr + 1;
        b.start = br + 1;
    }
    queue_release(&n);
    queue_release(&b);
    return st;
}
