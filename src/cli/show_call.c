/* show_call.c - one call of a dump: everything it took and gave, and its stack. */
#include <math.h>
#include "show.h"

enum { NAME_WIDTH = 26, TYPE_WIDTH = 16, SHAPE_WIDTH = 18 };

/* The row's name behind the call's: "input.0". A name of its own is shown whole. */
static msp_look_text
short_name(msp_look_text row, msp_look_text call)
{
    if (row.len > call.len + 1 && memcmp(row.p, call.p, call.len) == 0)
        return (msp_look_text){row.p + call.len + 1, row.len - call.len - 1};
    return row;
}

static void
put_padded(FILE *out, msp_style style, msp_look_text t, size_t width)
{
    size_t w = msp_text_width(t.p, t.len);

    msp_show_text(out, style, t);
    fprintf(out, "%*s", w < width ? (int)(width - w) : 1, "");
}

static msp_look_text
without_torch(msp_look_text type)
{
    return type.len > 6 && memcmp(type.p, "torch.", 6) == 0 ? (msp_look_text){type.p + 6, type.len - 6} : type;
}

static void
put_statistic(FILE *out, msp_cell c)
{
    char number[32];

    if (c.kind == MSP_CELL_FLOAT)
        msp_term_put(out, isfinite(c.as.f) ? MSP_STYLE_PLAIN : MSP_STYLE_RED, "%12s", msp_show_number(number, c.as.f));
    else if (c.kind == MSP_CELL_INT)
        fprintf(out, "%12lld", (long long)c.as.i);
    else if (c.kind == MSP_CELL_BOOL)
        fprintf(out, "%12s", c.as.b ? "True" : "False");
    else if (c.kind == MSP_CELL_TEXT && c.as.text.len < 12)
        fprintf(out, "%12.*s", (int)c.as.text.len, c.as.text.p);
    else
        fprintf(out, "%12s", "-");
}

static void
print_row(FILE *out, const msp_look *l, const msp_look_call *call, size_t i)
{
    msp_look_row row;

    msp_look_row_at(&row, l, i);
    fputs("  ", out);
    put_padded(out, row.nan || row.inf ? MSP_STYLE_RED : MSP_STYLE_PLAIN, short_name(row.name, call->name), NAME_WIDTH);
    put_padded(out, MSP_STYLE_PLAIN, without_torch(row.dtype), TYPE_WIDTH);
    put_padded(out, MSP_STYLE_PLAIN, row.shape, SHAPE_WIDTH);
    if (!row.tensor) { /* a number, a text: its value stands in place of all four */
        msp_show_cell(out, row.stats[0]);
    } else {
        for (int k = 0; k < MSP_NSTATS; k++)
            put_statistic(out, row.stats[k]);
        if (row.checksum.kind != MSP_CELL_EMPTY) {
            fputs("  ", out);
            msp_show_cell(out, row.checksum);
        }
    }
    fputc('\n', out);
}

void
msp_show_call(FILE *out, msp_look *l, size_t at, const char *place)
{
    int64_t depth = msp_look_depth(l, at);
    msp_look_call call;

    msp_look_call_at(&call, l, at);
    fputs("\n  ", out);
    msp_show_text(out, MSP_STYLE_BOLD, call.name);
    if (place[0] != '\0') {
        fputs("  ", out);
        put_safe(out, MSP_STYLE_DIM, place);
    }
    fprintf(out, "\n\n  %-*s%-*s%-*s%12s%12s%12s%12s\n", NAME_WIDTH, "", TYPE_WIDTH, "type", SHAPE_WIDTH, "shape",
            "max", "min", "mean", "norm");
    for (size_t i = call.first; i < call.first + call.rows; i++)
        print_row(out, l, &call, i);
    if (call.rows == 0)
        fputs("  it took and gave nothing that is recorded\n", out);
    fputs(depth < 0 ? "\n  Stack: not recorded\n" : "\n  Stack, innermost first\n", out);
    for (int64_t i = 0; i < depth; i++) {
        const char *frame = msp_look_frame(l, at, (size_t)i);

        if (frame != NULL)
            msp_show_frame(out, frame, 4);
    }
}

static void
json_row(msp_jsonout *j, const msp_look *l, size_t i)
{
    static const char *const keys[] = {"max", "min", "mean", "norm"};
    msp_look_row row;

    msp_look_row_at(&row, l, i);
    msp_jsonout_open(j, NULL, '{');
    msp_show_json_text(j, "name", row.name);
    msp_jsonout_text(j, "section", row.section);
    msp_show_json_text(j, "type", row.dtype);
    if (row.tensor) {
        msp_show_json_text(j, "shape", row.shape);
        for (int k = 0; k < MSP_NSTATS; k++)
            msp_show_json_cell(j, keys[k], row.stats[k]);
        msp_show_json_cell(j, "checksum", row.checksum);
        msp_show_json_text(j, "file", row.file);
        if (row.bytes >= 0)
            msp_jsonout_int(j, "bytes", row.bytes);
    } else {
        msp_show_json_cell(j, "value", row.stats[0]);
    }
    if (row.grad != NULL)
        msp_jsonout_bool(j, "requires_grad", row.grad[0] == 'T');
    msp_jsonout_close(j, '}');
}

void
msp_show_call_json(msp_jsonout *j, msp_look *l, size_t at, const msp_dump_place *place)
{
    int64_t depth = msp_look_depth(l, at);
    msp_look_call call;

    msp_look_call_at(&call, l, at);
    msp_jsonout_open(j, NULL, '{');
    msp_show_json_text(j, "name", call.name);
    msp_jsonout_text(j, "path", place->path);
    if (place->step == MSP_DUMP_NO_NUMBER)
        msp_jsonout_text(j, "step", NULL);
    else
        msp_jsonout_int(j, "step", place->step);
    if (place->rank == MSP_DUMP_NO_NUMBER)
        msp_jsonout_text(j, "rank", NULL);
    else
        msp_jsonout_int(j, "rank", place->rank);
    msp_jsonout_open(j, "rows", '[');
    for (size_t i = call.first; i < call.first + call.rows; i++)
        json_row(j, l, i);
    msp_jsonout_close(j, ']');
    if (depth < 0)
        msp_jsonout_text(j, "stack", NULL);
    else {
        msp_jsonout_open(j, "stack", '[');
        for (int64_t i = 0; i < depth; i++)
            msp_jsonout_text(j, NULL, msp_look_frame(l, at, (size_t)i));
        msp_jsonout_close(j, ']');
    }
    msp_jsonout_close(j, '}');
}
