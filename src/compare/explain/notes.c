/* notes.c - what else must be known of a pair before its verdict is believed: see answer.h. */
#include "compare/explain/answer.h"

#include <inttypes.h>

#include "compare/run/run.h"
#include "core/alloc.h"

static bool
add_note(msp_compare_pair *out, msp_buf *text)
{
    bool ok = !text->failed &&
              (text->len == 0 || msp_result_add(&out->answer.notes, &out->answer.nnotes, msp_buf_view(text)));

    msp_buf_clear(text);
    return ok;
}

enum { MOST_ALIGNMENT = 3 }; /* sentences on calls that one side alone makes; --json and the sheet have all */

static int
percent_of(int64_t part, int64_t whole)
{
    return whole > 0 ? (int)((100 * part + whole / 2) / whole) : 0;
}

/* Which bench rows somebody met; NULL: out of memory. */
static uint8_t *
met_rows(const msp_suspect_source *src)
{
    uint8_t *met = msp_alloc_zero(src->rows[1]->count + 1, 1);

    for (size_t i = 0; met != NULL && i < src->match->count; i++)
        if (src->match->bench[i] != MATCH_NONE)
            met[src->match->bench[i]] = 1;
    return met;
}

/* The rows of one side that have no partner. */
typedef struct lonely {
    int64_t rows, in_all;
    size_t first, last_met; /* row numbers; last_met SIZE_MAX: none */
    bool at_end;            /* all of them come after every row that has one */
} lonely;

static void
count_lonely(lonely *l, size_t row, bool met)
{
    l->in_all++;
    if (met) {
        l->last_met = row;
        l->at_end = l->rows == 0;
    } else {
        if (l->rows++ == 0) {
            l->first = row;
            l->at_end = l->last_met != SIZE_MAX;
        }
    }
}

static msp_str
api_of(const msp_rows *rows, size_t row)
{
    return rows->apis[rows->rows[row].api].name;
}

/* "70 % of the rows have no partner (76 of 109): different models? The first is X". */
static void
say_lonely(msp_buf *text, const msp_suspect_source *src, const lonely sides[2], int side)
{
    const lonely *l = &sides[side];
    static const char *const names[] = {"NPU dump", "bench"};
    msp_str first = api_of(src->rows[side], l->first);

    if (percent_of(l->rows, l->in_all) == 0)
        msp_buf_text(text, "less than 1 %");
    else
        msp_buf_printf(text, "%d %%", percent_of(l->rows, l->in_all));
    msp_buf_printf(text, " of the rows of the %s have no partner (%" PRId64 " of %" PRId64 ")", names[side], l->rows,
                   l->in_all);
    if (l->at_end && sides[1 - side].rows == 0) {
        msp_str last = api_of(src->rows[side], l->last_met);

        msp_buf_printf(text, ": the %s ends at %.*s. Was that run stopped?", side == 0 ? "bench's dump" : "NPU dump",
                       (int)last.len, last.p);
    } else {
        msp_buf_printf(text, "%s first %.*s", l->rows * 2 >= l->in_all ? ": different models, or levels? The" : ", the",
                       (int)first.len, first.p);
    }
}

static bool
note_texts(msp_compare_pair *out, const msp_verdict_texts *list, size_t most, msp_buf *text)
{
    bool ok = true;

    for (size_t i = 0; i < list->count && i < most && ok; i++) {
        msp_buf_text(text, list->items[i]);
        ok = add_note(out, text);
    }
    return ok;
}

/* The runs do not make the same calls, and the table's pairs are not all the verdict's. */
static bool
note_alignment(msp_compare_pair *out, const msp_suspect_source *src, msp_buf *text)
{
    int64_t met = 0;

    for (size_t i = 0; i < src->match->count; i++)
        met += src->match->bench[i] != MATCH_NONE;
    msp_buf_printf(text,
                   "The runs do not make the same calls. The verdict goes by calls that stand for each other (%" PRId64
                   " of %zu rows), the table by their numbers: %" PRId64 " of its rows have another partner",
                   met, src->match->count, out->verdict.realigned);
    return add_note(out, text) && note_texts(out, &out->verdict.alignment, MOST_ALIGNMENT, text);
}

/* Rows of which the parts are not put together as the layout says: how many, the first, and why. */
static bool
note_layout(msp_compare_pair *out, const msp_suspect_source *src, msp_buf *text)
{
    static const char *const names[] = {"NPU", "bench"};
    bool ok = true;

    for (int side = 0; side < 2 && ok; side++) {
        const msp_whole *w = src->measurer->whole[side];
        const msp_rows *rows = src->rows[side];
        size_t n = 0, first = 0;

        for (size_t i = 0; w != NULL && i < rows->count; i++)
            if (msp_whole_note(w, &rows->rows[i]) != NULL && n++ == 0)
                first = i;
        if (n == 0)
            continue;
        msp_buf_printf(text, "The layout does not hold for %zu row%s of the %s side; the first is ", n,
                       n == 1 ? "" : "s", names[side]);
        msp_buf_str(text, msp_row_name(&rows->rows[first]));
        msp_buf_printf(text, ": %s", msp_whole_note(w, &rows->rows[first]));
        ok = add_note(out, text);
    }
    return ok;
}

static bool
note_partners(msp_compare_pair *out, const msp_suspect_source *src, msp_buf *text)
{
    lonely sides[2] = {{.last_met = SIZE_MAX}, {.last_met = SIZE_MAX}};
    uint8_t *met;
    bool ok;

    if (out->verdict.realigned > 0)
        return note_alignment(out, src, text);
    met = met_rows(src);
    ok = met != NULL;

    for (size_t i = 0; i < src->match->count; i++)
        count_lonely(&sides[0], i, src->match->bench[i] != MATCH_NONE);
    for (size_t i = 0; ok && i < src->rows[1]->count; i++)
        count_lonely(&sides[1], i, met[i] != 0);
    for (int side = 0; side < 2 && ok; side++)
        if (sides[side].rows > 0) {
            say_lonely(text, src, sides, side);
            ok = add_note(out, text);
        }
    msp_free(met);
    return ok && note_texts(out, &out->verdict.alignment, MOST_ALIGNMENT, text);
}

/* Types: the first pair of them, and how many rows have another one on either side. */
static bool
note_types(msp_compare_pair *out, const msp_suspect_source *src, msp_buf *text)
{
    int64_t n = 0;
    size_t first = 0;

    for (size_t i = 0; i < src->match->count; i++) {
        const msp_row *a = &src->rows[0]->rows[i], *b;

        if (src->match->bench[i] == MATCH_NONE || a->plain)
            continue;
        b = &src->rows[1]->rows[src->match->bench[i]];
        if (src->rows[0]->texts[a->dtype].dtype != src->rows[1]->texts[b->dtype].dtype && n++ == 0)
            first = i;
    }
    out->counts.other_type = n;
    if (n == 0)
        return true;
    msp_buf_text(text, "The types are not the same: ");
    msp_buf_str(text, msp_row_dtype(src->rows[0], &src->rows[0]->rows[first]));
    msp_buf_text(text, " in the NPU run, ");
    msp_buf_str(text, msp_row_dtype(src->rows[1], &src->rows[1]->rows[src->match->bench[first]]));
    msp_buf_printf(text, " in the bench, in %" PRId64 " of %" PRId64 " rows", n, out->counts.matched);
    return add_note(out, text);
}

bool
msp_answer_notes(msp_compare_pair *out, const msp_suspect_source *src)
{
    msp_buf text = {0};
    bool ok = note_types(out, src, &text) && note_texts(out, &out->verdict.facts, 3, &text) &&
              note_texts(out, &out->verdict.flips, 2, &text);
    size_t before;

    ok = ok && note_layout(out, src, &text);
    before = out->answer.nnotes;
    ok = ok && note_partners(out, src, &text);
    out->answer.npartners = out->answer.nnotes - before;
    msp_buf_release(&text);
    return ok;
}
