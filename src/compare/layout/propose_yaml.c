/* propose_yaml.c - a proposed layout as its user reads it. */
#include "compare/layout/propose_parts.h"

/* Between double quotes, as YAML and JSON have it. */
static void
put_name(msp_buf *out, msp_str name)
{
    msp_json_writer w;

    msp_json_writer_init(&w, out, -1);
    msp_json_write_string(&w, name);
}

static void
put_rule(msp_buf *out, const msp_proposer *p, int side, msp_str name, const msp_proposal *how)
{
    msp_json_writer w;

    msp_buf_text(out, "  - {name: ");
    put_name(out, name);
    msp_buf_printf(out, ", how: %s", msp_layout_how_text(how->how));
    if (how->how == LAYOUT_CONCAT)
        msp_buf_printf(out, ", axis: %d", how->axis);
    if (how->is_mean) {
        msp_buf_text(out, ", factor: ");
        msp_json_writer_init(&w, out, -1);
        msp_json_write_f64(&w, (double)p->nstages / (double)p->n);
    }
    for (size_t i = 0; i < p->n && p->are_meshes; i++)
        msp_buf_printf(out, "%s%lld%s", i == 0 ? ", ranks: [" : ", ", (long long)p->all[i].rank,
                       i + 1 == p->n ? "]" : "");
    if (side == 1)
        msp_buf_text(out, ", side: bench");
    msp_buf_text(out, "}\n");
}

void
msp_propose_write_stages(msp_buf *out, const msp_proposer *p, int side)
{
    const size_t each = p->n / p->nstages;

    msp_buf_printf(out, "stages:\n  %s: [", side == 0 ? "npu" : "bench");
    for (size_t i = 0; i < p->n; i++)
        msp_buf_printf(out, "%s%s%lld%s", i == 0 ? "" : ", ", i % each == 0 ? "[" : "", (long long)p->all[i].rank,
                       i % each == each - 1 ? "]" : "");
    msp_buf_text(out, "]\n");
    if (p->micro_batches > 1)
        msp_buf_printf(out, "  micro_batches: %lld\n", (long long)p->micro_batches);
}

void
msp_propose_write_dtensors(msp_buf *out, const msp_proposer *p)
{
    if (p->placed.count > 0)
        msp_buf_text(out, "# DTensors say in their records what they are; a rule for them would come first:\n");
    for (size_t i = 0; i < p->placed.count; i++) {
        msp_buf_text(out, "#   ");
        msp_buf_str(out, p->placed.entries[i].key);
        msp_buf_char(out, '\n');
    }
}

size_t
msp_propose_write_rules(msp_buf *out, msp_proposer *p, int side)
{
    size_t written = 0;

    for (size_t i = 0; i < p->count; i++) {
        const msp_proposal *item = &p->items[i];
        msp_pattern *t = &p->patterns[item->pattern];

        if (t->is_mixed) {
            /* a row alone is believed when its numbers are, and by its shape where only one reading is left */
            if (item->agrees || item->how == LAYOUT_CONCAT) {
                put_rule(out, p, side, item->name, item);
                written++;
            }
        } else if (!t->is_written) {
            bool believed = 2 * t->agreeing >= t->rows;

            t->is_written = true;
            written += believed;
            if (!believed)
                msp_buf_printf(out, "  # the numbers of %zu of %zu rows do not agree with it:\n  #",
                               t->rows - t->agreeing, t->rows);
            put_rule(out, p, side, t->text, &(msp_proposal){.how = t->how, .axis = t->axis, .is_mean = t->is_mean});
        }
    }
    return written;
}

static bool
communicates(const msp_rows *t)
{
    for (size_t i = 0; i < t->napis; i++)
        if (msp_str_starts(t->apis[i].name, MSP_STR("Distributed.")))
            return true;
    return false;
}

/* What the parts say to each other has no partner in a run of one rank. */
size_t
msp_propose_write_skipped(msp_buf *out, const msp_proposer *p)
{
    bool any = false;

    for (size_t i = 0; i < p->n && !communicates(&p->all[p->whole].rows); i++)
        any = any || communicates(&p->all[i].rows);
    if (any)
        msp_buf_text(out, "  - {name: \"Distributed.*\", how: skip}\n");
    return any;
}
