/* stages.c - see stages.h. */
#include "compare/layout/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include "core/alloc.h"

/* ---- a call's name ----------------------------------------------------------------------------------------------- */

/* "Functional.linear.3.forward": what is before its number, the number, and what is behind. */
typedef struct numbered {
    msp_str before, behind;
    int64_t number;
    bool is_module;
} numbered;

static bool
is_module(msp_str name)
{
    return msp_str_starts(name, MSP_STR("Module.")) || msp_str_starts(name, MSP_STR("Cell."));
}

/* Where a module's path and class end and the rest begins. */
static size_t
path_length(msp_str name)
{
    static const char *const marks[] = {".forward", ".backward", ".parameters_grad"};

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        const char *at = msp_str_find(name, msp_str_of(marks[i]));

        if (at != NULL)
            return (size_t)(at - name.p);
    }
    return 0;
}

/* The first part of the name that is a number, of a module's name the first in its path. False: there is none. */
static bool
split_name(numbered *out, msp_str name)
{
    size_t end = name.len, from = 0;

    out->is_module = is_module(name);
    if (out->is_module)
        end = path_length(name);
    for (size_t i = 0; i <= end; i++) {
        unsigned long long number;

        if (i < end && name.p[i] != '.')
            continue;
        if (msp_str_to_u64((msp_str){name.p + from, i - from}, &number) && number < INT32_MAX) {
            out->before = (msp_str){name.p, from};
            out->behind = (msp_str){name.p + i, name.len - i};
            out->number = (int64_t)number;
            return true;
        }
        from = i + 1;
    }
    return false;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* Of the names that are alike but for their number, and one stage. */
typedef struct tally {
    int64_t count, least; /* one more than the largest number, and the smallest one */
} tally;

typedef struct counter {
    msp_map kinds;  /* what stands before the number, to the place of its first tally */
    tally *tallies; /* nstages for each kind */
    size_t nstages;
    int64_t micro_batches;
} counter;

static bool
count_names(counter *c, const msp_rows *rows, size_t stage)
{
    for (size_t i = 0; i < rows->napis; i++) {
        numbered n;
        msp_map_entry *e;
        bool added = false;
        tally *t;

        if (!split_name(&n, rows->apis[i].name))
            continue;
        e = msp_map_put(&c->kinds, n.before, (int64_t)(c->kinds.count * c->nstages), &added);
        if (e == NULL)
            return false;
        if (added) {
            t = msp_realloc(c->tallies, c->kinds.count * c->nstages, sizeof(*c->tallies));
            if (t == NULL)
                return false;
            c->tallies = t;
            for (size_t s = 0; s < c->nstages; s++)
                t[(size_t)e->value + s] = (tally){0, INT64_MAX};
        }
        t = &c->tallies[(size_t)e->value + stage];
        t->count = n.number >= t->count ? n.number + 1 : t->count;
        t->least = n.number < t->least ? n.number : t->least;
    }
    return true;
}

/* The number that a call of a stage has in the run of all stages. */
static int64_t
number_in_all(const counter *c, const tally *of, const numbered *n, size_t stage)
{
    int64_t m = n->is_module ? 1 : c->micro_batches, before = 0, all = 0, own;
    bool begins_anew = true;

    for (size_t s = 0; s < c->nstages; s++)
        m = of[s].count % m == 0 ? m : 1; /* calls that are not made once for each micro-batch */
    for (size_t s = 0; s < c->nstages; s++) {
        before += s < stage ? of[s].count / m : 0;
        all += of[s].count / m;
        begins_anew = begins_anew && (of[s].count == 0 || of[s].least == 0);
    }
    if (n->is_module && !begins_anew) /* its path is that of the whole model */
        return n->number;
    own = of[stage].count / m;
    return n->number / own * all + before + n->number % own;
}

/* ---- how many stages there are ----------------------------------------------------------------------------------- */

/* How many calls the numbers of a tally are of: a module whose path is that of the whole model begins later. */
static int64_t
size_of(const tally *t, bool is_module)
{
    return t->count - (is_module && t->count > 0 ? t->least : 0);
}

/* How many ranks make each call of a kind together, as the whole's last tally has them; 0: they do not add up. */
static size_t
ranks_for_each(const tally *of, size_t n, bool is_module)
{
    int64_t all = size_of(&of[n], is_module), sum = 0;

    for (size_t r = 0; r < n; r++)
        sum += size_of(&of[r], is_module);
    return all > 0 && sum > 0 && sum % all == 0 && sum / all <= (int64_t)n && n % (size_t)(sum / all) == 0
               ? (size_t)(sum / all)
               : 0;
}

msp_status
msp_stages_guess(size_t *nstages, const msp_rows *whole, msp_rows *const *ranks, size_t n, msp_error *err)
{
    counter c = {.nstages = n + 1}; /* each rank as a stage, and the whole */
    int64_t *votes = msp_alloc_zero(n + 1, sizeof(*votes)), most = 0, all = 0;
    bool ok = votes != NULL;

    *nstages = 0;
    for (size_t i = 0; i < n && ok; i++)
        ok = count_names(&c, ranks[i], i);
    ok = ok && count_names(&c, whole, n);
    for (size_t i = 0; i < c.kinds.count && ok; i++) {
        const tally *of = &c.tallies[(size_t)c.kinds.entries[i].value];
        bool module = is_module(c.kinds.entries[i].key);

        if (of[n].count == 0 || msp_str_starts(c.kinds.entries[i].key, MSP_STR("Distributed.")))
            continue;
        votes[ranks_for_each(of, n, module)] += size_of(&of[n], module);
        all += size_of(&of[n], module);
    }
    for (size_t each = 1; each <= n && ok; each++)
        if (votes[each] > most && votes[each] * 2 > all) {
            most = votes[each];
            *nstages = n / each;
        }
    msp_map_release(&c.kinds);
    msp_free(c.tallies);
    msp_free(votes);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory while stages are counted");
}

/* ---- renaming ---------------------------------------------------------------------------------------------------- */

static bool
rename_call(msp_arena *arena, msp_rows *t, size_t call, const numbered *n, int64_t number)
{
    msp_row_api *api = &t->apis[call];
    char digits[24];
    int width = snprintf(digits, sizeof(digits), "%lld", (long long)number);
    size_t stem = n->before.len + (size_t)width + n->behind.len;

    for (size_t i = 0; i <= api->count; i++) { /* the rows, and at last the call */
        msp_row *r = i < api->count ? &t->rows[api->first + i] : NULL;
        msp_str old = r != NULL ? msp_row_name(r) : api->name;
        char *text;

        if (!msp_str_starts(old, api->name))
            continue;
        text = msp_arena_alloc(arena, stem + old.len - api->name.len + 1, 1);
        if (text == NULL)
            return false;
        memcpy(text, n->before.p, n->before.len);
        memcpy(text + n->before.len, digits, (size_t)width);
        memcpy(text + n->before.len + width, n->behind.p, n->behind.len);
        memcpy(text + stem, old.p + api->name.len, old.len - api->name.len);
        if (r != NULL) {
            r->name = text;
            r->name_len = (uint32_t)(stem + old.len - api->name.len);
        } else {
            api->recorded = old;
            api->name = (msp_str){text, stem};
        }
    }
    return true;
}

static bool
rename_rank(const counter *c, msp_arena *arena, const msp_stage_rows *r)
{
    for (size_t i = 0; i < r->rows->napis; i++) {
        numbered n;
        int64_t number;

        if (!split_name(&n, r->rows->apis[i].name))
            continue;
        number = number_in_all(c, &c->tallies[msp_map_get(&c->kinds, n.before)->value], &n, r->stage);
        if (number != n.number && !rename_call(arena, r->rows, i, &n, number))
            return false;
    }
    return true;
}

bool
msp_stages_rename(msp_arena *arena, const msp_stage_rows *ranks, size_t n, size_t nstages, int64_t micro_batches)
{
    counter c = {.nstages = nstages, .micro_batches = micro_batches};
    bool ok = true;

    for (size_t i = 0; i < n && ok; i++)
        ok = count_names(&c, ranks[i].rows, ranks[i].stage);
    for (size_t i = 0; i < n && ok; i++)
        ok = rename_rank(&c, arena, &ranks[i]);
    msp_map_release(&c.kinds);
    msp_free(c.tallies);
    return ok;
}

/* ---- the order of one run ---------------------------------------------------------------------------------------- */

typedef struct ranked {
    bool backward;
    int64_t stage; /* of backward calls: counted from the end */
    size_t at;     /* in the file */
} ranked;

static int
by_time(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    if (x->backward != y->backward)
        return x->backward ? 1 : -1;
    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static bool
is_backward(msp_str name)
{
    return msp_str_has(name, ".backward") || msp_str_has(name, ".parameters_grad");
}

bool
msp_stages_sort(msp_rows *t, const size_t *stages)
{
    ranked *order = msp_alloc(t->napis, sizeof(*order));
    msp_row *rows = msp_alloc(t->count, sizeof(*rows));
    msp_row_api *apis = msp_alloc(t->napis, sizeof(*apis));
    bool ok = order != NULL && rows != NULL && apis != NULL;
    size_t at = 0;

    for (size_t i = 0; ok && i < t->napis; i++) {
        bool backward = is_backward(t->apis[i].name);

        order[i] = (ranked){backward, backward ? -(int64_t)stages[i] : (int64_t)stages[i], i};
    }
    if (ok && t->napis > 1)
        qsort(order, t->napis, sizeof(*order), by_time);
    for (size_t i = 0; ok && i < t->napis; i++) {
        const msp_row_api *from = &t->apis[order[i].at];

        apis[i] = *from;
        apis[i].first = at;
        for (size_t k = 0; k < from->count; k++, at++) {
            rows[at] = t->rows[from->first + k];
            rows[at].api = (uint32_t)i;
        }
    }
    if (ok) {
        memcpy(t->apis, apis, t->napis * sizeof(*apis));
        memcpy(t->rows, rows, at * sizeof(*rows));
        t->count = at;
    }
    msp_free(order);
    msp_free(rows);
    msp_free(apis);
    return ok;
}
