/* part.c - what one pair hands in for the job: see job.h. */
#include "compare/job/job.h"

#include "core/alloc.h"
#include "core/vec.h"

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* ---- communication ----------------------------------------------------------------------------------------------- */

static msp_status
note_row(msp_comm_peers *peers, const msp_job_source *src, const msp_row *r, msp_str call, msp_error *err)
{
    bool md5 = src->pair->mode == MSP_MODE_MD5;
    const msp_val *v = md5 ? &r->md5 : &r->stats[MSP_STAT_MAX];
    msp_comm_arg arg = {.call = call, .name = msp_row_name(r), .is_checksum = md5, .is_number = v->kind == VAL_INT};

    if (r->p2p != 0)
        arg.p2p_peer = src->rows[0]->p2p[r->p2p - 1].peer;
    if (arg.is_number)
        arg.number = v->as.i;
    else if (v->kind == VAL_TEXT)
        arg.text = (msp_str){v->as.p, v->len};
    return msp_comm_note(peers, &arg, err);
}

static msp_status
add_call(msp_job_part *p, msp_comm_peers *peers, const msp_job_source *src, const msp_row_api *api, msp_error *err)
{
    const msp_row *rows = src->rows[0]->rows;
    msp_status st = MSP_OK;
    msp_job_call *c;
    char *name;

    msp_comm_peers_reset(peers);
    for (size_t i = api->first; i < api->first + api->count && st == MSP_OK; i++)
        if (rows[i].state == STATE_INPUT)
            st = note_row(peers, src, &rows[i], api->name, err);
    if (st != MSP_OK)
        return st;
    name = msp_arena_text(&p->arena, api->name.p, api->name.len);
    if (name == NULL || !msp_vec_grow((void **)&p->calls, &p->cap, p->ncalls + 1, sizeof(*p->calls)))
        return no_memory(err);
    c = &p->calls[p->ncalls++];
    c->name = name;
    return msp_comm_finish(&c->comm, peers, (msp_str){name, api->name.len}, p->rank, &p->arena, err);
}

/* The communication calls, and where the call with index wrong (SIZE_MAX: none) stands among them. */
static msp_status
walk_calls(msp_job_part *p, const msp_job_source *src, size_t wrong, msp_error *err)
{
    msp_comm_peers peers = {0};
    msp_status st = MSP_OK;
    size_t place = 0;

    for (size_t i = 0; i < src->rows[0]->napis && st == MSP_OK; i++) {
        const msp_row_api *api = &src->rows[0]->apis[i];
        bool comm = msp_comm_is(api->name);

        if (i == wrong)
            p->wrong = (msp_job_spot){.found = true, .before = p->ncalls, .place = place, .is_result = comm};
        place++;
        if (comm) {
            st = add_call(p, &peers, src, api, err);
            place = 0;
        }
    }
    msp_comm_peers_release(&peers);
    return st;
}

/* ---- the first wrong call ---------------------------------------------------------------------------------------- */

/* The row that is blamed, or the first beyond the manual's limits; -1: none. */
static int64_t
wrong_row(const msp_job_source *src)
{
    const msp_compare_answer *a = &src->pair->answer;

    return a->blamed.found ? a->blamed.row : src->suspect;
}

/* What is said of the pair; where nothing is wrong the first row beyond the manual's limits, which is weak. */
static size_t
find_wrong(const msp_job_source *src, const char **why, bool *is_weak)
{
    const msp_pair_verdict *v = &src->pair->verdict;
    const msp_compare_answer *a = &src->pair->answer;

    if (a->level == MSP_ANSWER_WRONG && a->blamed.found) {
        bool named = v->nsuspects > 0 && strcmp(v->suspects[0].api, a->blamed.api) == 0;

        *why = named ? v->suspects[0].reason : a->sentence;
        return src->rows[0]->rows[a->blamed.row].api;
    }
    if (src->suspect < 0)
        return SIZE_MAX;
    *is_weak = v->given && (v->kind == MSP_VERDICT_IDENTICAL || v->kind == MSP_VERDICT_WITHIN);
    *why = v->given && v->start.count > 0 ? v->start.items[0] : src->pair->suspect.verdict;
    return src->rows[0]->rows[src->suspect].api;
}

/* A communication call that was given something wrong is no news: the ranks that only received it are behind. */
static bool
was_given_wrong(const msp_job_source *src, size_t api)
{
    int64_t row = wrong_row(src);
    const msp_row *r = row < 0 ? NULL : &src->rows[0]->rows[row];

    return r != NULL && r->api == api && (r->state == STATE_INPUT || r->state == STATE_PARAMETERS);
}

static bool
copy_stack(msp_compare_place *out, const msp_stack *stack, msp_str api)
{
    const msp_json *frames = msp_stack_frames(stack, api);

    for (size_t i = 0; i < msp_json_count(frames); i++)
        if (!msp_result_add(&out->stack, &out->nstack, msp_json_string(msp_json_at(frames, i))))
            return false;
    return true;
}

/* ---- numbers of calls -------------------------------------------------------------------------------------------- */

/* Of each side: the first call without partner and the last one with, by index; SIZE_MAX: none. */
typedef struct extent {
    size_t lonely[2], last[2];
} extent;

static msp_status
measure_extent(extent *out, const msp_job_source *src, msp_error *err)
{
    const msp_rows *sides[2] = {src->rows[0], src->rows[1]};
    uint8_t *met = msp_alloc_zero(sides[0]->napis + sides[1]->napis + 1, 1);

    *out = (extent){{SIZE_MAX, SIZE_MAX}, {SIZE_MAX, SIZE_MAX}};
    if (met == NULL)
        return no_memory(err);
    for (size_t i = 0; i < src->match->count; i++)
        if (src->match->bench[i] != MATCH_NONE) {
            met[sides[0]->rows[i].api] = 1;
            met[sides[0]->napis + sides[1]->rows[src->match->bench[i]].api] = 1;
        }
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < sides[side]->napis; i++) {
            if (met[(side == 0 ? 0 : sides[0]->napis) + i])
                out->last[side] = i;
            else if (out->lonely[side] == SIZE_MAX && sides[side]->apis[i].count > 0)
                out->lonely[side] = i;
        }
    msp_free(met);
    return MSP_OK;
}

/* "the NPU side stops early, after X: 3 calls of the bench's 10", or that there are other numbers of calls. */
static void
describe_extent(msp_buf *out, const extent *e, const msp_job_source *src)
{
    static const char *const names[2] = {"NPU", "bench"};
    size_t n[2] = {src->rows[0]->napis, src->rows[1]->napis};
    int side = n[0] < n[1] ? 0 : 1; /* the one with fewer */
    size_t last = e->last[side];
    msp_str name;

    if (n[0] == n[1])
        return;
    if (last != SIZE_MAX && last + 1 == n[side] && e->last[1 - side] != SIZE_MAX &&
        e->lonely[1 - side] > e->last[1 - side]) {
        name = src->rows[side]->apis[last].name;
        msp_buf_printf(out, "the %s side stops early: %zu of the other's %zu calls, the last is %.*s", names[side],
                       n[side], n[1 - side], (int)name.len, name.p);
        return;
    }
    msp_buf_printf(out, "%zu calls on the NPU side, %zu on the bench side", n[0], n[1]);
    side = 1 - side;
    if (e->lonely[side] != SIZE_MAX) {
        name = src->rows[side]->apis[e->lonely[side]].name;
        msp_buf_printf(out, "; the first that only the %s has: %.*s", names[side], (int)name.len, name.p);
    }
}

static msp_status
note_calls(msp_compare_place *place, const msp_job_source *src, msp_error *err)
{
    msp_buf text = {0};
    msp_status st;
    extent e;

    place->calls[0] = (int64_t)src->rows[0]->napis;
    place->calls[1] = (int64_t)src->rows[1]->napis;
    if (place->calls[0] == place->calls[1])
        return MSP_OK;
    st = measure_extent(&e, src, err);
    if (st == MSP_OK) {
        describe_extent(&text, &e, src);
        place->note = text.failed ? NULL : msp_result_text(msp_buf_view(&text));
        if (place->note == NULL)
            st = no_memory(err);
    }
    msp_buf_release(&text);
    return st;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static msp_status
describe_place(msp_compare_place *place, const msp_job_part *p, const msp_job_source *src, size_t wrong,
               const char *why, msp_error *err)
{
    const msp_rows *n = src->rows[0];
    bool ok = true;

    if (wrong != SIZE_MAX) {
        place->wrong = msp_result_text(n->apis[wrong].name);
        place->why = msp_result_text(msp_str_of(why));
        ok = place->wrong != NULL && place->why != NULL && copy_stack(place, src->stack, n->apis[wrong].name);
        if (ok && p->wrong.before > 0) {
            place->after = msp_result_text(msp_str_of(p->calls[p->wrong.before - 1].name));
            ok = place->after != NULL;
        }
    }
    if (ok && src->nonfinite >= 0) {
        place->nonfinite = msp_result_text(n->apis[n->rows[src->nonfinite].api].name);
        ok = place->nonfinite != NULL;
    }
    return ok ? note_calls(place, src, err) : no_memory(err);
}

msp_status
msp_job_part_make(msp_job_part **out, msp_compare_place *place, const msp_job_source *src, msp_error *err)
{
    msp_job_part *p = msp_alloc_zero(1, sizeof(*p));
    const char *why = NULL;
    bool is_weak = false;
    size_t wrong = find_wrong(src, &why, &is_weak);
    msp_status st;

    *out = p;
    if (p == NULL)
        return no_memory(err);
    p->rank = src->pair->rank == MSP_DUMP_NO_NUMBER ? 0 : src->pair->rank;
    st = walk_calls(p, src, wrong, err);
    p->wrong.is_weak = is_weak;
    if (p->wrong.found && p->wrong.is_result)
        p->wrong.is_result = !was_given_wrong(src, wrong);
    return st == MSP_OK ? describe_place(place, p, src, wrong, why, err) : st;
}

void
msp_job_part_close(msp_job_part *p)
{
    if (p == NULL)
        return;
    msp_free(p->calls);
    msp_arena_release(&p->arena);
    msp_free(p);
}
