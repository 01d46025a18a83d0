/*
 * pair_align.c - the partners that the verdict goes by. The table's are those of the manual, by name and number; where
 * that leaves rows without partner the runs do not make the same calls, and all numbers after the first such call may
 * mean another one (match/align.h).
 */
#include "compare/pair/pair.h"

#include <math.h>

#include "core/alloc.h"
#include "core/path.h"
#include "core/pool.h"
#include "dump/construct.h"

/* ---- modules ----------------------------------------------------------------------------------------------------- */

/* The modules in which one side's calls ran. */
typedef struct modules {
    msp_construct construct;
    msp_str *of; /* each call's, empty: none */
} modules;

/* False: out of memory. */
static bool
read_modules(modules *m, const msp_pair_side *side)
{
    m->of = msp_alloc_zero(side->rows.napis + 1, sizeof(*m->of));
    if (m->of == NULL || !msp_construct_open_if_any(&m->construct, side->path))
        return false;
    for (size_t i = 0; i < side->rows.napis; i++)
        m->of[i] = msp_construct_parent(&m->construct, side->rows.apis[i].name);
    return true;
}

static void
close_modules(modules *m)
{
    msp_free(m->of);
    msp_construct_close(&m->construct);
}

/* ---- what has other partners than in the table ------------------------------------------------------------------- */

typedef struct measuring {
    msp_pair *p;
    const msp_suspect_source *src;
} measuring;

/* Elements of one row and its new partner. */
static void
measure_row(size_t i, void *payload)
{
    const measuring *m = payload;
    uint32_t row = m->p->moved[i];

    m->p->diffs[row] = msp_suspect_difference(m->src, &m->p->sides[0].rows.rows[row],
                                              &m->p->sides[1].rows.rows[m->p->aligned.bench[row]]);
}

static void
measure_end(size_t i, void *payload)
{
    const measuring *m = payload;
    msp_replaced_end *e = &m->p->replaced.ends[i];

    e->diff = msp_suspect_difference(m->src, &m->p->sides[0].rows.rows[e->npu], &m->p->sides[1].rows.rows[e->bench]);
}

static bool
has_files(const msp_pair *p, uint32_t npu, uint32_t bench)
{
    return p->sides[0].rows.rows[npu].file != NULL && p->sides[1].rows.rows[bench].file != NULL;
}

/* The rows whose partner is another one than the table's. */
static bool
list_moved(msp_pair *p)
{
    p->moved = msp_alloc(p->match.count + 1, sizeof(*p->moved));
    if (p->moved == NULL)
        return false;
    for (uint32_t i = 0; i < p->match.count; i++) {
        if (p->match.bench[i] == p->aligned.bench[i])
            continue;
        p->realigned++;
        p->diffs[i] = NAN;
        if (p->out->mode == MSP_MODE_REAL && p->aligned.bench[i] != MATCH_NONE && has_files(p, i, p->aligned.bench[i]))
            p->moved[p->nmoved++] = i;
    }
    return true;
}

/* The first row that differs from its partner at all, and the first that is not finite on one side only. */
static bool
note_first(msp_pair *p)
{
    msp_evidence_source src = msp_pair_evidence_source(p);

    msp_free(p->out->first_differs);
    p->out->first_differs = NULL;
    p->nonfinite = -1;
    for (size_t i = 0; i < p->match.count; i++) {
        double d = p->sides[0].rows.rows[i].plain ? 0 : msp_evidence_difference(&src, i);

        if (d > 0 && p->out->first_differs == NULL) {
            p->out->first_differs = msp_result_text(msp_row_name(&p->sides[0].rows.rows[i]));
            p->out->first_differs_row = (int64_t)i;
            if (p->out->first_differs == NULL)
                return false;
        }
        if (isinf(d) && p->nonfinite < 0)
            p->nonfinite = (int64_t)i;
    }
    return true;
}

static msp_status
measure_moved(msp_pair *p)
{
    msp_suspect_source src = msp_pair_suspect_source(p);
    measuring m = {p, &src};

    msp_pool_run(p->nmoved, p->run->row_threads, measure_row, &m);
    if (p->out->mode == MSP_MODE_REAL)
        msp_pool_run(p->replaced.nends, p->run->row_threads, measure_end, &m);
    if (p->realigned == 0)
        return MSP_OK;
    return note_first(p) ? MSP_OK : msp_pair_no_memory(p);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Names that a mapping gives, and rows that are no calls, stay with the partners that they have. */
static bool
can_be_aligned(const msp_pair *p)
{
    return p->plan->npu->kind == MSP_DUMP_API && p->out->mode != MSP_MODE_MD5 && p->run->names == NULL &&
           p->run->cross == NULL && p->out->framework[0] == p->out->framework[1] &&
           (p->match.matched < p->match.count || p->match.bench_only > 0 || p->fuzzy);
}

static msp_status
align_calls(msp_pair *p, const msp_align_side sides[2])
{
    const msp_rows *const rows[2] = {sides[0].rows, sides[1].rows};
    msp_alignment a;
    msp_align_names names = {&a, rows[1]};
    msp_match_rule rule = {.key = msp_align_key, .key_ctx = &names};
    msp_status st = msp_align_calls(&a, sides, p->err);

    if (st == MSP_OK)
        st = msp_match_rows(&p->aligned, rows[0], rows[1], &rule, p->err);
    if (st == MSP_OK)
        st = msp_replaced_find(&p->replaced, &a, rows, p->err);
    if (st == MSP_OK)
        st = msp_verdict_words_alignment(&p->alignment, &a, sides, p->err);
    if (st == MSP_OK && !list_moved(p))
        st = msp_pair_no_memory(p);
    msp_alignment_release(&a);
    return st;
}

/* A bench without stack.json, or with one that cannot be read, is aligned without. */
static msp_stack *
open_bench_stack(const msp_pair *p)
{
    msp_stack *s = NULL;
    char *path;

    if (p->whole[1] != NULL)
        return msp_whole_stacks(&s, p->whole[1], &p->sides[1].rows, NULL) == MSP_OK ? s : NULL;
    path = msp_path_beside(p->sides[1].path, "stack.json");
    if (path != NULL && msp_path_kind_of(path) == MSP_PATH_FILE && msp_stack_open(&s, path, NULL) != MSP_OK)
        s = NULL;
    msp_free(path);
    return s;
}

msp_status
msp_pair_align(msp_pair *p)
{
    msp_align_side sides[2] = {{.rows = &p->sides[0].rows, .stack = p->stack}, {.rows = &p->sides[1].rows}};
    modules in[2] = {{.of = NULL}, {.of = NULL}};
    msp_stack *bench;
    msp_status st;

    if (!can_be_aligned(p))
        return MSP_OK;
    bench = open_bench_stack(p);
    sides[1].stack = bench;
    st = read_modules(&in[0], &p->sides[0]) && read_modules(&in[1], &p->sides[1]) ? MSP_OK : msp_pair_no_memory(p);
    for (int side = 0; side < 2; side++)
        sides[side].modules = in[side].of;
    if (st == MSP_OK)
        st = align_calls(p, sides);
    msp_stack_close(bench);
    for (int side = 0; side < 2; side++)
        close_modules(&in[side]);
    return st == MSP_OK ? measure_moved(p) : st;
}
