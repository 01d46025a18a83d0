/* recipe.c - how a row is put together: what the layout, or the record of a DTensor, says of its parts. */
#include "compare/layout/whole_parts.h"

enum { MAX_MESHES = 128 };

/* At which place of dimension d does number i of the mesh stand? */
static size_t
place_in(const msp_row_dtensor *d, size_t i, int dimension)
{
    for (int k = d->ndim - 1; k > dimension; k--)
        i /= (size_t)d->sizes[k];
    return i % (size_t)d->sizes[dimension];
}

/* Has rank number i of the mesh a part of what number `at` has a part of? They differ in sharded dimensions only; all
 * where none is. */
static bool
is_beside(const msp_row_dtensor *d, size_t i, size_t at, bool all)
{
    for (int k = 0; k < d->ndim && !all; k++)
        if (d->placements[k].kind == DTENSOR_REPLICATE && place_in(d, i, k) != place_in(d, at, k))
            return false;
    return true;
}

/* What a DTensor's placements make of its parts: shards over any dimensions of the mesh, or summands over one. */
static void
read_placements(msp_recipe *r, const msp_row_dtensor *d)
{
    int split = 0;

    for (int i = 0; i < d->ndim; i++) {
        if (d->placements[i].kind == DTENSOR_REPLICATE)
            continue;
        split++;
        if (d->placements[i].kind == DTENSOR_SHARD)
            r->cuts[r->ncuts++] = (msp_cut){d->placements[i].dim, (size_t)d->sizes[i]};
        if (d->placements[i].kind == DTENSOR_OTHER)
            r->note = "its parts are neither shards nor summands";
    }
    r->how = split == 0 ? LAYOUT_REPLICATE : r->ncuts > 0 ? LAYOUT_CONCAT : LAYOUT_SUM;
    if (r->note == NULL && r->how == LAYOUT_CONCAT && r->ncuts < split)
        r->note = "its shards are summands, too";
    if (r->note == NULL && r->how == LAYOUT_SUM && split > 1)
        r->note = "it is a sum over more than one dimension of its mesh";
}

static void
read_mesh(msp_recipe *r, const msp_row_dtensor *d, int64_t rank)
{
    size_t at = 0;

    r->asked = true;
    read_placements(r, d);
    while (at < d->nranks && d->ranks[at] != rank)
        at++;
    if (r->note == NULL && at == d->nranks)
        r->note = "its rank is not in its mesh";
    r->ranks = r->own;
    for (size_t i = 0; i < d->nranks && r->note == NULL; i++) {
        if (!is_beside(d, i, at, r->how == LAYOUT_REPLICATE))
            continue;
        if (r->nranks == MSP_RECIPE_PARTS)
            r->note = "it has more than 1024 parts";
        else
            r->own[r->nranks++] = d->ranks[i];
    }
}

static void
clear_recipe(msp_recipe *out)
{
    out->how = LAYOUT_REPLICATE;
    out->factor = 1;
    out->sums = 1;
    out->ncuts = 0;
    out->asked = false;
    out->note = NULL;
    out->ranks = NULL;
    out->nranks = 0;
}

/* ---- a rule for DTensors of several meshes ----------------------------------------------------------------------- */

static bool
is_in_mesh(const msp_row_dtensor *d, int64_t rank)
{
    for (size_t i = 0; i < d->nranks; i++)
        if (d->ranks[i] == rank)
            return true;
    return false;
}

/* What the ranks of one more mesh put together becomes a part of the whole. False: they do it in another way. */
static bool
add_mesh(msp_recipe *out, msp_recipe *inner, const msp_row_dtensor *d, int64_t rank, size_t nmeshes)
{
    clear_recipe(inner);
    read_mesh(inner, d, rank);
    if (inner->how == LAYOUT_REPLICATE)
        inner->nranks = inner->nranks > 0; /* one stands for all */
    out->note = inner->note;
    if (nmeshes == 0) {
        out->how = inner->how;
        out->ncuts = inner->ncuts;
        memcpy(out->cuts, inner->cuts, sizeof(out->cuts));
    } else if (inner->how != out->how || inner->ncuts != out->ncuts || inner->nranks * nmeshes != out->nranks ||
               memcmp(out->cuts, inner->cuts, (size_t)inner->ncuts * sizeof(*out->cuts)) != 0) {
        return false;
    }
    for (size_t i = 0; i < inner->nranks && out->note == NULL; i++)
        if (out->nranks == MSP_RECIPE_PARTS)
            out->note = "it has more than 1024 parts";
        else
            out->own[out->nranks++] = inner->ranks[i];
    return true;
}

/* What the rule makes of the wholes of so many meshes. */
static void
apply_rule(msp_recipe *out, const msp_layout_rule *rule, size_t nmeshes)
{
    out->factor = rule->factor;
    if (rule->how == LAYOUT_REPLICATE) {
        out->nranks /= nmeshes;
    } else if (rule->how == LAYOUT_SUM && out->how == LAYOUT_CONCAT) {
        out->sums = nmeshes;
    } else if (rule->how == LAYOUT_SUM) {
        out->how = LAYOUT_SUM;
    } else if (out->how == LAYOUT_SUM) {
        out->note = "its shards are summands, too";
    } else {
        memmove(&out->cuts[1], out->cuts, (size_t)out->ncuts * sizeof(*out->cuts));
        out->cuts[0] = (msp_cut){rule->axis, nmeshes};
        out->ncuts++;
        out->how = LAYOUT_CONCAT;
    }
}

/*
 * Where the ranks of a rule are in several meshes, as those of data parallel replicas with shards each, the rule is for
 * what each mesh puts together. False: they are not; then the rule is for the parts themselves.
 */
static bool
combine(msp_recipe *out, msp_recipe *inner, msp_whole *w, const msp_whole_member *m, const msp_row *r,
        const msp_layout_rule *rule)
{
    const msp_row_dtensor *meshes[MAX_MESHES];
    size_t n = rule->nranks > 0 ? rule->nranks : w->nmembers, nmeshes = 0;

    out->asked = true;
    out->ranks = out->own;
    for (size_t i = 0; i < n && out->note == NULL; i++) {
        const msp_whole_member *theirs = rule->nranks > 0 ? msp_whole_member_of(w, rule->ranks[i]) : &w->members[i];
        const msp_row *part = theirs != NULL ? msp_whole_row_of(theirs, msp_row_name(r)) : NULL;
        size_t known = 0;

        if (theirs != NULL && rule->nranks == 0 && theirs->stage != m->stage)
            continue;
        if (part == NULL || part->dtensor == 0) {
            nmeshes = 0;
            break;
        }
        while (known < nmeshes && !is_in_mesh(meshes[known], theirs->rank))
            known++;
        if (known < nmeshes)
            continue;
        if (nmeshes == MAX_MESHES ||
            !add_mesh(out, inner, &theirs->rows->dtensors[part->dtensor - 1], theirs->rank, nmeshes))
            out->note = "its meshes put it together in different ways";
        else
            meshes[nmeshes++] = &theirs->rows->dtensors[part->dtensor - 1];
    }
    if (nmeshes < 2) {
        clear_recipe(out);
        return false;
    }
    if (out->note == NULL)
        apply_rule(out, rule, nmeshes);
    return true;
}

void
msp_recipe_find(msp_recipe *out, msp_whole *w, const msp_whole_member *m, const msp_row *r)
{
    const msp_layout_rule *rule = msp_layout_find(w->layout, w->side, msp_row_name(r));

    clear_recipe(out);
    if (rule != NULL && r->dtensor != 0 && rule->how != LAYOUT_SKIP && combine(out, &out[1], w, m, r, rule))
        return;
    if (rule != NULL) {
        out->how = rule->how;
        out->factor = rule->factor;
        if (rule->how == LAYOUT_CONCAT)
            out->cuts[out->ncuts++] = (msp_cut){.axis = rule->axis};
        out->asked = true;
        out->ranks = rule->ranks;
        out->nranks = rule->nranks;
    } else if (r->dtensor != 0) {
        read_mesh(out, &m->rows->dtensors[r->dtensor - 1], m->rank);
    }
}
