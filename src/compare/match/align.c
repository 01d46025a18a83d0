/* align.c - see align.h. */
#include "compare/match/align.h"

#include "compare/match/sequence.h"
#include "core/alloc.h"

/* What calls are told apart by, the most first. */
typedef enum level {
    BY_PLACE = 0, /* name, shapes, module, code */
    BY_SHAPES,    /* name, shapes */
    BY_RESULTS,   /* name, shapes of results */
    BY_NAME,      /* name: where that makes both sides of a gap the same */
    NLEVELS
} level;

enum { CODE_FRAMES = 3 }; /* of the user's: those further out are the training script's */

/* ---- names ------------------------------------------------------------------------------------------------------- */

typedef enum direction { FORWARD, BACKWARD, NEITHER } direction;

typedef struct call_name {
    msp_str function, number; /* "Functional.linear", "3" */
    direction way;
    bool layer; /* the number stands at the end: "Module.fc.Linear.forward.0" */
} call_name;

static direction
way_of(msp_str word)
{
    return msp_str_eq(word, MSP_STR("forward")) ? FORWARD : msp_str_eq(word, MSP_STR("backward")) ? BACKWARD : NEITHER;
}

static call_name
parse_name(msp_str api)
{
    call_name n = {.function = api};
    msp_str last = msp_str_pop(&n.function);
    unsigned long long number;

    n.way = way_of(last);
    if (n.way != NEITHER) {
        n.number = msp_str_pop(&n.function);
    } else if (msp_str_to_u64(last, &number)) {
        n.number = last;
        n.way = way_of(msp_str_pop(&n.function));
        n.layer = true;
    }
    if (n.way == NEITHER || n.function.len == 0)
        return (call_name){.function = api, .way = NEITHER};
    return n;
}

msp_str
msp_align_function(msp_str api)
{
    return parse_name(api).function;
}

/* The call of the other way that belongs to this one: a forward call's backward call, or the reverse. */
static msp_str
counterpart_name(msp_str api, direction way, msp_buf *scratch)
{
    call_name n = parse_name(api);
    const char *word = way == FORWARD ? "forward" : "backward";

    msp_buf_clear(scratch);
    msp_buf_str(scratch, n.function);
    msp_buf_char(scratch, '.');
    if (n.layer) {
        msp_buf_text(scratch, word);
        msp_buf_char(scratch, '.');
    }
    msp_buf_str(scratch, n.number);
    if (!n.layer) {
        msp_buf_char(scratch, '.');
        msp_buf_text(scratch, word);
    }
    return msp_buf_view(scratch);
}

/* ---- what a call is ---------------------------------------------------------------------------------------------- */

typedef struct aligner {
    msp_alignment *out;
    const msp_align_side *sides;
    bool use_code, use_modules;
    msp_map keys; /* text: number */
    msp_arena texts;
    msp_buf scratch;
    uint32_t *ids[2];    /* of the calls of a stream, by position */
    uint32_t *stream[2]; /* calls that are being aligned */
    size_t count[2];
    uint32_t *place;  /* for each position of the NPU's stream the bench's, or MATCH_NONE; rising */
    uint32_t *found;  /* room for one gap's result */
    msp_map names[2]; /* api: index */
    msp_sequence_room room;
} aligner;

/* Lines move when a file is edited, and files lie elsewhere on another machine: what the code says does not. */
static void
add_code(msp_buf *b, const msp_stack *stack, msp_str api)
{
    const msp_json *frames = msp_stack_frames(stack, api);
    size_t taken = 0;

    for (size_t i = 0; i < msp_json_count(frames) && taken < CODE_FRAMES; i++) {
        msp_str frame = msp_json_string(msp_json_at(frames, i));
        const char *in = msp_str_find(frame, MSP_STR(", in "));

        if (in == NULL || msp_frame_is_machinery(frame.p, frame.len))
            continue;
        msp_buf_add(b, in, (size_t)(frame.p + frame.len - in));
        taken++;
    }
}

static void
add_shapes(msp_buf *b, const msp_rows *rows, const msp_row_api *api, bool results)
{
    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *r = &rows->rows[i];

        if (r->plain || (results && r->state < STATE_OUTPUT))
            continue;
        msp_buf_char(b, (char)('0' + r->state));
        msp_buf_str(b, msp_row_shape(rows, r));
    }
}

static msp_str
key_text(aligner *g, int side, uint32_t call, level how)
{
    const msp_align_side *s = &g->sides[side];
    const msp_row_api *api = &s->rows->apis[call];

    msp_buf_clear(&g->scratch);
    msp_buf_char(&g->scratch, (char)('0' + how));
    msp_buf_str(&g->scratch, msp_align_function(api->name));
    msp_buf_char(&g->scratch, '\n');
    if (how <= BY_RESULTS)
        add_shapes(&g->scratch, s->rows, api, how == BY_RESULTS);
    if (how == BY_PLACE && g->use_modules)
        msp_buf_str(&g->scratch, s->modules[call]);
    if (how == BY_PLACE && g->use_code)
        add_code(&g->scratch, s->stack, api->name);
    return msp_buf_view(&g->scratch);
}

/* A number for each text, in *id. */
static bool
number_key(aligner *g, msp_str text, uint32_t *id)
{
    msp_map_entry *e = g->scratch.failed ? NULL : msp_map_get(&g->keys, text);

    if (e == NULL && !g->scratch.failed) {
        const char *copy = msp_arena_text(&g->texts, text.p, text.len);

        if (copy != NULL)
            e = msp_map_put(&g->keys, (msp_str){copy, text.len}, (int64_t)g->keys.count, NULL);
    }
    *id = e == NULL ? 0 : (uint32_t)e->value;
    return e != NULL;
}

static bool
number_calls(aligner *g, level how)
{
    msp_map_release(&g->keys);
    msp_arena_release(&g->texts);
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < g->count[side]; i++)
            if (!number_key(g, key_text(g, side, g->stream[side][i], how), &g->ids[side][i]))
                return false;
    return true;
}

/* ---- one stream beside the other --------------------------------------------------------------------------------- */

static void
align_gap(aligner *g, size_t a0, size_t a1, size_t b0, size_t b1, level how)
{
    msp_sequence a = {g->ids[0] + a0, a1 - a0}, b = {g->ids[1] + b0, b1 - b0};
    size_t met = 0;

    if (a.count == 0 || b.count == 0)
        return;
    (void)msp_sequence_align(g->found, &a, &b, &g->room);
    for (size_t i = 0; i < a.count; i++)
        met += g->found[i] != MATCH_NONE;
    if (how == BY_NAME && (met < a.count || met < b.count))
        return;
    for (size_t i = 0; i < a.count; i++)
        if (g->found[i] != MATCH_NONE)
            g->place[a0 + i] = (uint32_t)b0 + g->found[i];
}

static bool
align_level(aligner *g, level how)
{
    size_t a0 = 0, b0 = 0;

    if (!number_calls(g, how) ||
        !msp_sequence_room_init(&g->room, g->count[0] > g->count[1] ? g->count[0] : g->count[1], g->keys.count))
        return false;
    for (size_t i = 0; i <= g->count[0]; i++) {
        bool end = i == g->count[0];
        size_t at;

        if (!end && g->place[i] == MATCH_NONE)
            continue;
        at = end ? g->count[1] : g->place[i];
        align_gap(g, a0, i, b0, at, how);
        a0 = i + 1;
        b0 = at + 1;
    }
    msp_sequence_room_release(&g->room);
    return true;
}

/*
 * Order is not everything: two branches may be computed in another order, and of streams that differ too much the
 * middle was given up. Calls that are left over on both sides and are the same by all that is known, number included,
 * go together.
 */
static bool
pair_left_over(aligner *g, bool *bench_met)
{
    const msp_rows *n = g->sides[0].rows;
    uint32_t mine, other;

    for (size_t i = 0; i < g->count[0]; i++) {
        uint32_t call = g->stream[0][i];
        msp_map_entry *e = g->place[i] == MATCH_NONE ? msp_map_get(&g->names[1], n->apis[call].name) : NULL;

        if (e == NULL || bench_met[e->value])
            continue;
        if (!number_key(g, key_text(g, 0, call, BY_PLACE), &mine) ||
            !number_key(g, key_text(g, 1, (uint32_t)e->value, BY_PLACE), &other))
            return false;
        if (mine == other) {
            g->out->partner[call] = (uint32_t)e->value;
            bench_met[e->value] = true;
        }
    }
    return true;
}

static bool
align_stream(aligner *g, bool *bench_met)
{
    level first = g->use_code || g->use_modules ? BY_PLACE : BY_SHAPES;

    for (size_t i = 0; i < g->count[0]; i++)
        g->place[i] = MATCH_NONE;
    for (level how = first; how < NLEVELS; how++)
        if (!align_level(g, how))
            return false;
    for (size_t i = 0; i < g->count[0]; i++)
        if (g->place[i] != MATCH_NONE) {
            uint32_t partner = g->stream[1][g->place[i]];

            g->out->partner[g->stream[0][i]] = partner;
            bench_met[partner] = true;
        }
    return pair_left_over(g, bench_met);
}

/* ---- all calls --------------------------------------------------------------------------------------------------- */

static msp_map_entry *
find_call(const aligner *g, int side, msp_str name)
{
    return msp_map_get(&g->names[side], name);
}

/* Forward calls, or backward calls whose forward call was not recorded. */
static bool
take_stream(aligner *g, direction way)
{
    for (int side = 0; side < 2; side++) {
        const msp_rows *rows = g->sides[side].rows;

        g->count[side] = 0;
        for (uint32_t i = 0; i < rows->napis; i++) {
            if (parse_name(rows->apis[i].name).way != way)
                continue;
            if (way == BACKWARD &&
                find_call(g, side, counterpart_name(rows->apis[i].name, FORWARD, &g->scratch)) != NULL)
                continue;
            g->stream[side][g->count[side]++] = i;
        }
    }
    return !g->scratch.failed;
}

/* A backward call goes with its forward call; what is neither, with its namesake. */
static bool
pair_other_calls(aligner *g)
{
    const msp_rows *n = g->sides[0].rows, *b = g->sides[1].rows;

    for (uint32_t i = 0; i < n->napis; i++) {
        msp_str name = n->apis[i].name;
        direction way = parse_name(name).way;
        msp_map_entry *e = NULL, *forward;

        if (way == FORWARD)
            continue;
        if (way == NEITHER) {
            e = find_call(g, 1, name);
        } else {
            forward = find_call(g, 0, counterpart_name(name, FORWARD, &g->scratch));
            if (forward == NULL) /* it has a stream of its own */
                continue;
            if (g->out->partner[forward->value] != MATCH_NONE)
                e = find_call(g, 1,
                              counterpart_name(b->apis[g->out->partner[forward->value]].name, BACKWARD, &g->scratch));
        }
        g->out->partner[i] = e == NULL ? MATCH_NONE : (uint32_t)e->value;
    }
    return !g->scratch.failed;
}

static bool
index_names(aligner *g)
{
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < g->sides[side].rows->napis; i++)
            if (msp_map_put(&g->names[side], g->sides[side].rows->apis[i].name, (int64_t)i, NULL) == NULL)
                return false;
    return true;
}

/* What stands without partner between calls that have met. */
static bool
list_gaps(aligner *g, const bool *bench_met)
{
    msp_alignment *a = g->out;
    size_t x = 0, y = 0;

    a->gaps = msp_alloc(g->count[0] + g->count[1] + 1, sizeof(*a->gaps));
    if (a->gaps == NULL)
        return false;
    for (int side = 0; side < 2; side++) {
        a->order[side] = g->stream[side];
        g->stream[side] = NULL;
        a->ncalls[side] = g->count[side];
        a->met[side] = msp_alloc_zero(g->count[side] + 1, sizeof(bool));
        if (a->met[side] == NULL)
            return false;
    }
    for (size_t i = 0; i < a->ncalls[0]; i++)
        a->met[0][i] = a->partner[a->order[0][i]] != MATCH_NONE;
    for (size_t i = 0; i < a->ncalls[1]; i++)
        a->met[1][i] = bench_met[a->order[1][i]];
    while (x < a->ncalls[0] || y < a->ncalls[1]) {
        msp_align_gap gap = {{x, y}, {0, 0}};

        while (x < a->ncalls[0] && !a->met[0][x])
            x++;
        while (y < a->ncalls[1] && !a->met[1][y])
            y++;
        gap.count[0] = x - gap.first[0];
        gap.count[1] = y - gap.first[1];
        if (gap.count[0] + gap.count[1] > 0)
            a->gaps[a->ngaps++] = gap;
        x++;
        y++;
    }
    return true;
}

static bool
has_modules(const msp_align_side *s)
{
    for (size_t i = 0; s->modules != NULL && i < s->rows->napis; i++)
        if (s->modules[i].len > 0)
            return true;
    return false;
}

static bool
make_room(aligner *g)
{
    size_t most = 0;

    for (int side = 0; side < 2; side++) {
        size_t n = g->sides[side].rows->napis;

        most = n > most ? n : most;
        g->ids[side] = msp_alloc(n + 1, sizeof(uint32_t));
        g->stream[side] = msp_alloc(n + 1, sizeof(uint32_t));
        if (g->ids[side] == NULL || g->stream[side] == NULL)
            return false;
    }
    g->place = msp_alloc(most + 1, sizeof(uint32_t));
    g->found = msp_alloc(most + 1, sizeof(uint32_t));
    g->out->partner = msp_alloc(most + 1, sizeof(uint32_t));
    for (size_t i = 0; g->out->partner != NULL && i <= most; i++)
        g->out->partner[i] = MATCH_NONE;
    return g->place != NULL && g->found != NULL && g->out->partner != NULL;
}

msp_status
msp_align_calls(msp_alignment *out, const msp_align_side sides[2], msp_error *err)
{
    aligner g = {.out = out, .sides = sides};
    bool *bench_met = msp_alloc_zero(sides[1].rows->napis + 1, sizeof(bool)), ok;

    *out = (msp_alignment){0};
    g.use_code = sides[0].stack != NULL && sides[1].stack != NULL;
    g.use_modules = has_modules(&sides[0]) && has_modules(&sides[1]);
    /* what is left of the streams of the last call is the forward calls' */
    ok = bench_met != NULL && make_room(&g) && index_names(&g) && take_stream(&g, BACKWARD) &&
         align_stream(&g, bench_met) && take_stream(&g, FORWARD) && align_stream(&g, bench_met) &&
         pair_other_calls(&g) && list_gaps(&g, bench_met);
    for (int side = 0; side < 2; side++) {
        msp_free(g.ids[side]);
        msp_free(g.stream[side]);
        msp_map_release(&g.names[side]);
    }
    msp_free(g.place);
    msp_free(g.found);
    msp_free(bench_met);
    msp_map_release(&g.keys);
    msp_arena_release(&g.texts);
    msp_buf_release(&g.scratch);
    msp_sequence_room_release(&g.room);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory while aligning calls");
}

void
msp_alignment_release(msp_alignment *a)
{
    msp_free(a->partner);
    for (int side = 0; side < 2; side++) {
        msp_free(a->order[side]);
        msp_free(a->met[side]);
    }
    msp_free(a->gaps);
    *a = (msp_alignment){0};
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

msp_str
msp_align_key(const msp_rows *npu, const msp_row *row, msp_buf *scratch, void *ctx)
{
    const msp_align_names *names = ctx;
    msp_str name = msp_row_name(row), api = npu->apis[row->api].name;
    uint32_t partner = names->alignment->partner[row->api];

    if (parse_name(api).way == NEITHER || !msp_str_starts(name, api))
        return name;
    if (partner == MATCH_NONE)
        return (msp_str){NULL, 0};
    msp_buf_str(scratch, names->bench->apis[partner].name);
    msp_buf_add(scratch, name.p + api.len, name.len - api.len);
    return msp_buf_view(scratch);
}
