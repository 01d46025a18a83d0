/* pack.c - see pack.h. */
#include "compare/share/pack.h"

#include "compare/first/node.h"
#include "core/alloc.h"

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static void
fail_pack(msp_pack *p)
{
    p->failed = true;
}

void
msp_pack_raw(msp_pack *p, void *field, size_t size)
{
    if (p->out != NULL) {
        msp_buf_add(p->out, field, size);
        p->failed = p->failed || p->out->failed;
        return;
    }
    if (p->failed || (size_t)(p->end - p->at) < size) {
        memset(field, 0, size);
        fail_pack(p);
        return;
    }
    memcpy(field, p->at, size);
    p->at += size;
}

#define RAW(p, field) msp_pack_raw(p, &(field), sizeof(field))

/* How many items follow, of which each takes at least a byte. */
static void
pack_count(msp_pack *p, size_t *n)
{
    uint64_t v = *n;

    RAW(p, v);
    if (p->out == NULL && v > (uint64_t)(p->end - p->at)) {
        fail_pack(p);
        v = 0;
    }
    *n = (size_t)v;
}

/* Length + 1, so that 0 is no text. */
void
msp_pack_text(msp_pack *p, char **text)
{
    uint64_t n = p->out == NULL || *text == NULL ? 0 : strlen(*text) + 1;

    RAW(p, n);
    if (p->out != NULL) {
        if (n > 1)
            msp_pack_raw(p, *text, (size_t)n - 1);
        return;
    }
    *text = NULL;
    if (n == 0)
        return;
    if (n - 1 > (uint64_t)(p->end - p->at)) {
        fail_pack(p);
        return;
    }
    *text = msp_result_text((msp_str){p->at, (size_t)n - 1});
    p->at += n - 1;
    if (*text == NULL)
        fail_pack(p);
}

static void
pack_texts(msp_pack *p, char ***list, size_t *n)
{
    pack_count(p, n);
    if (p->out == NULL) {
        *list = *n > 0 ? msp_alloc_zero(*n, sizeof(**list)) : NULL;
        if (*n > 0 && *list == NULL) {
            *n = 0;
            fail_pack(p);
        }
    }
    for (size_t i = 0; i < *n; i++)
        msp_pack_text(p, &(*list)[i]);
}

/* Memory for n items that are about to be read. */
static void *
room_for(msp_pack *p, size_t *n, size_t size)
{
    void *items = *n > 0 ? msp_alloc_zero(*n, size) : NULL;

    if (*n > 0 && items == NULL) {
        *n = 0;
        fail_pack(p);
    }
    return items;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

/* How many places a side has: one, unless several ranks are put together. */
static size_t
places_of(const msp_plan_pair *pair, int side)
{
    size_t n = side == 0 ? pair->nnpu : pair->nbench;

    return pair->joined[side] != NULL ? n : 1;
}

static void
pack_place(msp_pack *p, msp_dump_place *to)
{
    msp_pack_text(p, &to->path);
    msp_pack_text(p, &to->group);
    RAW(p, to->step);
    RAW(p, to->rank);
    msp_pack_text(p, &to->step_name);
    msp_pack_text(p, &to->rank_name);
    RAW(p, to->kind);
    if (to->path == NULL || to->group == NULL || to->step_name == NULL || to->rank_name == NULL)
        fail_pack(p);
}

static void
pack_side(msp_pack *p, msp_plan_pair *pair, int side)
{
    const msp_dump_place **first = side == 0 ? &pair->npu : &pair->bench;
    size_t n = p->out != NULL ? places_of(pair, side) : 0;

    pack_count(p, &n);
    if (p->out == NULL) {
        pair->joined[side] = room_for(p, &n, sizeof(**first));
        *first = pair->joined[side];
        *(side == 0 ? &pair->nnpu : &pair->nbench) = n;
        if (n == 0)
            fail_pack(p);
    }
    for (size_t i = 0; i < n; i++)
        pack_place(p, (msp_dump_place *)*first + i);
}

void
msp_pack_plan(msp_pack *p, msp_plan_pair *pair)
{
    pack_side(p, pair, 0);
    pack_side(p, pair, 1);
    msp_pack_text(p, &pair->label);
    msp_pack_text(p, &pair->out_dir);
    msp_pack_text(p, &pair->stem);
    msp_pack_text(p, &pair->advisor_stem);
    if (pair->label == NULL || pair->out_dir == NULL || pair->stem == NULL || pair->advisor_stem == NULL)
        fail_pack(p);
}

static void
release_side(msp_plan_pair *pair, int side)
{
    msp_dump_place *all = pair->joined[side];

    for (size_t i = 0; all != NULL && i < places_of(pair, side); i++) {
        msp_free(all[i].path);
        msp_free(all[i].group);
        msp_free(all[i].step_name);
        msp_free(all[i].rank_name);
    }
    msp_free(all);
}

void
msp_pack_plan_release(msp_plan_pair *pair)
{
    release_side(pair, 0);
    release_side(pair, 1);
    msp_free(pair->label);
    msp_free(pair->out_dir);
    msp_free(pair->stem);
    msp_free(pair->advisor_stem);
    *pair = (msp_plan_pair){0};
}

/* ---- what came out ----------------------------------------------------------------------------------------------- */

static void
pack_suspect(msp_pack *p, msp_compare_suspect *s)
{
    RAW(p, s->found);
    RAW(p, s->row);
    msp_pack_text(p, &s->npu_name);
    msp_pack_text(p, &s->bench_name);
    msp_pack_text(p, &s->api);
    msp_pack_text(p, &s->verdict);
    msp_pack_text(p, &s->message);
    RAW(p, s->has_metrics);
    RAW(p, s->metrics);
    for (int side = 0; side < 2; side++) {
        msp_pack_text(p, &s->dtype[side]);
        msp_pack_text(p, &s->shape[side]);
        msp_pack_text(p, &s->md5[side]);
        for (int i = 0; i < MSP_NSTATS; i++)
            msp_pack_text(p, &s->stats[side][i]);
    }
    for (int i = 0; i < MSP_NSTATS; i++) {
        msp_pack_text(p, &s->diff[i]);
        msp_pack_text(p, &s->rel[i]);
    }
    RAW(p, s->has_worst);
    RAW(p, s->worst_index);
    RAW(p, s->worst_ndim);
    RAW(p, s->worst_coords);
    RAW(p, s->worst_value);
    RAW(p, s->inputs);
    RAW(p, s->error);
    RAW(p, s->input_error);
    msp_pack_text(p, &s->input);
    msp_pack_text(p, &s->argument);
    RAW(p, s->argument_before);
    pack_texts(p, &s->stack, &s->nstack);
}

static void
pack_verdict_texts(msp_pack *p, msp_verdict_texts *t)
{
    pack_texts(p, &t->items, &t->count);
}

static void
pack_blamed(msp_pack *p, msp_verdict_suspect *s)
{
    msp_pack_text(p, &s->api);
    msp_pack_text(p, &s->bench_api);
    msp_pack_text(p, &s->at);
    msp_pack_text(p, &s->reason);
    pack_verdict_texts(p, &s->reasons);
    msp_pack_text(p, &s->shape_text);
    RAW(p, s->shape);
    RAW(p, s->confidence);
    RAW(p, s->local);
    RAW(p, s->local_bench);
    RAW(p, s->inherited);
    RAW(p, s->expected);
    RAW(p, s->times);
    RAW(p, s->ratio);
    RAW(p, s->diff_in);
    RAW(p, s->diff_out);
    RAW(p, s->nonfinite);
    RAW(p, s->result);
}

/* The results of single calls stay where they were judged: what is said about all pairs does not look at them. */
static void
pack_verdict(msp_pack *p, msp_pair_verdict *v)
{
    msp_verdict_texts *const texts[] = {&v->start, &v->facts, &v->flips, &v->alignment, &v->untold};

    RAW(p, v->given);
    RAW(p, v->kind);
    msp_pack_text(p, &v->sentence);
    RAW(p, v->nsuspects);
    if (v->nsuspects > MSP_VERDICT_SUSPECTS) {
        v->nsuspects = 0;
        fail_pack(p);
    }
    for (size_t i = 0; i < v->nsuspects; i++)
        pack_blamed(p, &v->suspects[i]);
    RAW(p, v->suspicious);
    RAW(p, v->judged);
    RAW(p, v->not_judged);
    RAW(p, v->judged_calls);
    pack_count(p, &v->nunjudged);
    if (p->out == NULL)
        v->unjudged = room_for(p, &v->nunjudged, sizeof(*v->unjudged));
    for (size_t i = 0; i < v->nunjudged; i++) {
        msp_pack_text(p, &v->unjudged[i].reason);
        RAW(p, v->unjudged[i].results);
    }
    RAW(p, v->other_type);
    msp_pack_text(p, &v->types);
    RAW(p, v->largest);
    msp_pack_text(p, &v->largest_at);
    msp_pack_text(p, &v->first_different);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        pack_verdict_texts(p, texts[i]);
    RAW(p, v->realigned);
    RAW(p, v->basis);
    RAW(p, v->replayed);
    RAW(p, v->replay_seconds);
    msp_pack_text(p, &v->no_replay);
    RAW(p, v->false_alarms);
    RAW(p, v->noise);
}

static void
pack_compared_place(msp_pack *p, msp_compare_place *place)
{
    RAW(p, place->calls);
    msp_pack_text(p, &place->wrong);
    msp_pack_text(p, &place->why);
    pack_texts(p, &place->stack, &place->nstack);
    msp_pack_text(p, &place->nonfinite);
    msp_pack_text(p, &place->after);
    msp_pack_text(p, &place->note);
}

void
msp_pack_pair(msp_pack *p, msp_compare_pair *pair)
{
    RAW(p, pair->mode);
    RAW(p, pair->framework);
    RAW(p, pair->status);
    msp_pack_text(p, &pair->error);
    RAW(p, pair->cut);
    msp_pack_text(p, &pair->unreadable);
    RAW(p, pair->counts);
    pack_suspect(p, &pair->suspect);
    pack_verdict(p, &pair->verdict);
    RAW(p, pair->answer.level);
    msp_pack_text(p, &pair->answer.sentence);
    pack_texts(p, &pair->answer.notes, &pair->answer.nnotes);
    RAW(p, pair->answer.npartners);
    pack_suspect(p, &pair->answer.blamed);
    msp_pack_text(p, &pair->first_differs);
    RAW(p, pair->first_differs_row);
    pack_texts(p, &pair->files, &pair->nfiles);
    msp_pack_text(p, &pair->advice);
    msp_pack_text(p, &pair->advised);
    RAW(p, pair->advised_line);
    RAW(p, pair->tensor_bytes);
    RAW(p, pair->seconds);
    pack_compared_place(p, &pair->place);
    RAW(p, pair->has_tensors);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* Is there one? When read, a new one. */
static bool
pack_presence(msp_pack *p, void **part, size_t size)
{
    bool there = p->out != NULL && *part != NULL;

    RAW(p, there);
    if (p->out == NULL) {
        *part = there ? msp_alloc_zero(1, size) : NULL;
        if (there && *part == NULL)
            fail_pack(p);
    }
    return *part != NULL;
}

/* A view that lives in an arena. */
static void
pack_view(msp_pack *p, msp_arena *arena, msp_str *s)
{
    pack_count(p, &s->len);
    if (p->out != NULL) {
        if (s->len > 0)
            msp_pack_raw(p, (void *)s->p, s->len);
        return;
    }
    s->p = p->failed ? NULL : msp_arena_text(arena, p->at, s->len);
    if (s->p == NULL) {
        s->len = 0;
        fail_pack(p);
        return;
    }
    p->at += s->len;
}

/* Lists that calls share are written once: the last that was written is known to both sides. */
static void
pack_comm(msp_pack *p, msp_arena *arena, msp_str name, msp_comm_call *c, const msp_comm_call **last)
{
    bool same = p->out != NULL && *last != NULL && (*last)->peers == c->peers && (*last)->npeers == c->npeers;

    RAW(p, c->type);
    RAW(p, c->point_to_point);
    RAW(p, same);
    c->api = msp_comm_part(name, 2);
    c->direction = msp_comm_part(name, 0);
    if (same) {
        if (p->out == NULL && *last != NULL) {
            c->peers = (*last)->peers;
            c->npeers = (*last)->npeers;
            c->hash = (*last)->hash;
        }
    } else {
        pack_count(p, &c->npeers);
        if (p->out == NULL && c->npeers > (size_t)(p->end - p->at) / sizeof(*c->peers)) {
            c->npeers = 0;
            fail_pack(p);
        }
        if (p->out == NULL && c->npeers > 0)
            c->peers = msp_arena_alloc(arena, c->npeers, sizeof(*c->peers));
        if (c->npeers > 0 && c->peers == NULL) {
            c->npeers = 0;
            fail_pack(p);
        }
        if (c->npeers > 0)
            msp_pack_raw(p, (void *)c->peers, c->npeers * sizeof(*c->peers));
        if (p->out == NULL)
            c->hash = c->npeers > 0 ? msp_comm_hash(c->peers, c->npeers) : 0;
    }
    *last = c;
}

void
msp_pack_job(msp_pack *p, msp_job_part **part)
{
    const msp_comm_call *last = NULL;
    msp_job_part *j;

    if (!pack_presence(p, (void **)part, sizeof(**part)))
        return;
    j = *part;
    RAW(p, j->rank);
    RAW(p, j->wrong);
    pack_count(p, &j->ncalls);
    if (p->out == NULL)
        j->calls = room_for(p, &j->ncalls, sizeof(*j->calls));
    for (size_t i = 0; i < j->ncalls; i++) {
        msp_str name = p->out != NULL ? msp_str_of(j->calls[i].name) : (msp_str){0};

        pack_view(p, &j->arena, &name);
        if (p->out == NULL)
            j->calls[i].name = name.p != NULL ? name.p : "";
        pack_comm(p, &j->arena, msp_str_of(j->calls[i].name), &j->calls[i].comm, &last);
    }
    if (j->wrong.before > j->ncalls || (j->wrong.is_result && j->wrong.before >= j->ncalls))
        fail_pack(p);
}

static void
pack_op(msp_pack *p, msp_arena *arena, msp_da_op *op)
{
    pack_view(p, arena, &op->name);
    RAW(p, op->offset);
    RAW(p, op->len);
    RAW(p, op->sub_layer);
}

void
msp_pack_da(msp_pack *p, msp_da_rank **rank)
{
    const msp_comm_call *last = NULL;
    msp_da_rank *r;
    msp_str path;

    if (!pack_presence(p, (void **)rank, sizeof(**rank)))
        return;
    r = *rank;
    path = p->out != NULL ? msp_str_of(r->path) : (msp_str){0};
    RAW(p, r->mode);
    RAW(p, r->rank);
    RAW(p, r->given);
    pack_view(p, &r->arena, &path);
    if (p->out == NULL) {
        r->file = MSP_FILE_NONE;
        r->path = (char *)(path.p != NULL ? path.p : "");
    }
    pack_op(p, &r->arena, &r->gap);
    pack_count(p, &r->nnodes);
    if (p->out == NULL)
        r->nodes = room_for(p, &r->nnodes, sizeof(*r->nodes));
    for (size_t i = 0; i < r->nnodes; i++) {
        msp_da_node *n = &r->nodes[i];

        pack_op(p, &r->arena, &n->op);
        pack_op(p, &r->arena, &n->before);
        RAW(p, n->same);
        pack_comm(p, &r->arena, n->op.name, &n->comm, &last);
    }
}

void
msp_pack_page(msp_pack *p, msp_page_part **part)
{
    msp_page_rest rest = {0};
    bool there = p->out != NULL && *part != NULL;

    RAW(p, there);
    if (!there) {
        if (p->out == NULL)
            *part = NULL;
        return;
    }
    if (p->out != NULL)
        rest = *msp_page_part_rest(*part);
    msp_pack_text(p, &rest.file);
    RAW(p, rest.rows);
    RAW(p, rest.calls);
    RAW(p, rest.largest);
    msp_pack_text(p, &rest.largest_call);
    RAW(p, rest.bins);
    if (p->out == NULL && (p->failed || msp_page_part_adopt(part, &rest, NULL) != MSP_OK)) {
        msp_free(rest.file);
        msp_free(rest.largest_call);
        *part = NULL;
        fail_pack(p);
    }
}
