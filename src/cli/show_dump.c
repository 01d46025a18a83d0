/* show_dump.c - a dump in numbers, where NaN and inf come first, and its calls. */
#include <math.h>
#include "shell.h"
#include "show.h"

enum { SOME_CALLS = 40, SOME_KINDS = 12, NAME_MAX_WIDTH = 44 };

/* ---- for a person -------------------------------------------------------------------------------------------- */

static void
put_bytes(FILE *out, int64_t bytes)
{
    char buf[32];

    fputs(msp_format_bytes(buf, (double)bytes), out);
}

static void
put_count(FILE *out, int64_t n, const char *what)
{
    char buf[32];

    fprintf(out, "%s %s%s", msp_format_count(buf, n), what, plural_ending(n));
}

static void
print_file(FILE *out, const msp_look_summary *s, const char *place)
{
    char n[32];

    print_label(out, "Dump");
    put_safe(out, MSP_STYLE_BOLD, s->path);
    fputs(", ", out);
    put_bytes(out, (int64_t)s->size);
    fputc('\n', out);
    if (place[0] != '\0') {
        print_label(out, "Of");
        put_safe(out, MSP_STYLE_PLAIN, place);
        fputc('\n', out);
    }
    print_label(out, "Recorded");
    if (s->kind == MSP_DUMP_LEGACY)
        fprintf(out, "by %s", s->task);
    else {
        fprintf(out, "%s, task ", msp_framework_name(s->framework));
        put_safe(out, MSP_STYLE_PLAIN, s->task);
        fputs(s->level[0] != '\0' ? ", level " : "", out);
        put_safe(out, MSP_STYLE_PLAIN, s->level);
    }
    fputc('\n', out);
    if (s->cut) {
        print_label(out, "");
        msp_term_put(out, MSP_STYLE_RED, "cut off at byte %s: what is complete is shown",
                     msp_format_count(n, (int64_t)s->cut_at));
        fputc('\n', out);
    }
}

static void
print_sizes(FILE *out, const msp_look_summary *s)
{
    print_label(out, "Calls");
    put_count(out, s->calls, "call");
    fprintf(out, ", %lld of backward, %lld of modules\n", (long long)s->backward, (long long)s->modules);
    if (s->kind == MSP_DUMP_LEGACY && s->calls == 0) { /* mode "stack" */
        print_label(out, "");
        fputs("stacks that were recorded alone: msprobe parse ", out);
        msp_shell_put(out, s->path);
        fputs(" Torch_\n", out);
    }
    print_label(out, "Tensors");
    put_count(out, s->tensors, "tensor");
    fputs(", ", out);
    put_count(out, s->elements, "element");
    fputs(", ", out);
    put_bytes(out, s->bytes);
    fputc('\n', out);
    for (size_t i = 0; i < s->ntypes && i < SOME_KINDS; i++) {
        print_label(out, i == 0 ? "Types" : "");
        msp_show_text(out, MSP_STYLE_PLAIN, s->types[i].name);
        fputs(": ", out);
        put_count(out, s->types[i].count, "tensor");
        fputs(", ", out);
        put_bytes(out, s->types[i].bytes);
        fputc('\n', out);
    }
    if (s->files == 0)
        return;
    print_label(out, "Files");
    put_count(out, s->files, "tensor file");
    if (s->missing > 0) {
        fputs(", ", out);
        msp_term_put(out, MSP_STYLE_RED, "%lld of them missing", (long long)s->missing);
    }
    fputc('\n', out);
}

static const char *
origin_text(msp_look_origin o)
{
    return o == MSP_LOOK_MADE    ? "its inputs are finite: this call makes it"
           : o == MSP_LOOK_TAKEN ? "it is among what the call takes, and no call before gives it"
                                 : "where it comes from was not recorded";
}

/* The line of the program that made the call: the frames together tell which it is. */
static void
print_frame_of(FILE *out, msp_look *l, size_t call)
{
    int64_t depth = msp_look_depth(l, call);
    char **frames = depth > 0 ? calloc((size_t)depth, sizeof(*frames)) : NULL;
    size_t n = 0;

    for (int64_t i = 0; frames != NULL && i < depth; i++) {
        const char *frame = msp_look_frame(l, call, (size_t)i);

        if (frame != NULL && (frames[n] = strdup(frame)) != NULL)
            n++;
    }
    msp_summary_frames(out, frames, n);
    for (size_t i = 0; i < n; i++)
        free(frames[i]);
    free(frames);
}

static void
print_find(FILE *out, msp_look *l, const char *what, const msp_look_find *f)
{
    msp_look_row row;

    print_label(out, what);
    if (f->origin == MSP_LOOK_NOWHERE) {
        fputs(msp_look_summary_of(l)->has_stats ? "none\n" : "unknown: no statistics were recorded\n", out);
        return;
    }
    msp_look_row_at(&row, l, f->row);
    fputs("first in ", out);
    msp_show_text(out, MSP_STYLE_RED, row.name);
    fprintf(out, " (%lld tensor%s in all)\n", (long long)f->rows, plural_ending(f->rows));
    print_label(out, "");
    fprintf(out, "%s\n", origin_text(f->origin));
    print_frame_of(out, l, f->call);
}

static void
print_growth(FILE *out, const msp_look *l, const msp_look_summary *s)
{
    char in[32], given[32];
    msp_look_call call;

    for (size_t i = 0; i < s->ngrowth; i++) {
        msp_look_call_at(&call, l, s->growth[i].call);
        print_label(out, i == 0 ? "Growth" : "");
        fprintf(out, "%8.4gx  norm %s -> %s  ", s->growth[i].out / s->growth[i].in,
                msp_show_number(in, s->growth[i].in), msp_show_number(given, s->growth[i].out));
        msp_show_text(out, MSP_STYLE_PLAIN, call.name);
        fputc('\n', out);
    }
}

static void
print_largest(FILE *out, const msp_look *l, const msp_look_summary *s)
{
    msp_look_row row;
    char bytes[32];

    for (size_t i = 0; i < s->nlargest; i++) {
        msp_look_row_at(&row, l, s->largest[i]);
        print_label(out, i == 0 ? "Largest" : "");
        fprintf(out, "%8s  ", msp_format_bytes(bytes, (double)row.bytes));
        msp_show_text(out, MSP_STYLE_PLAIN, row.name);
        fputs("  ", out);
        msp_show_text(out, MSP_STYLE_DIM, row.dtype);
        fputc(' ', out);
        msp_show_text(out, MSP_STYLE_DIM, row.shape);
        fputc('\n', out);
    }
}

static void
print_kinds(FILE *out, const msp_look_summary *s)
{
    for (size_t i = 0; i < s->nkinds && i < SOME_KINDS; i++) {
        print_label(out, i == 0 ? "Kinds" : "");
        fprintf(out, "%6lld  ", (long long)s->kinds[i].count);
        msp_show_text(out, MSP_STYLE_PLAIN, s->kinds[i].name);
        fputs(s->kinds[i].module ? " (module)\n" : "\n", out);
    }
    if (s->nkinds > SOME_KINDS) {
        print_label(out, "");
        fprintf(out, "and %zu kinds more (--json has all)\n", s->nkinds - SOME_KINDS);
    }
}

/* What the call gives first: its type and shape say most about it. */
static bool
first_given(msp_look_row *out, const msp_look *l, const msp_look_call *call)
{
    for (size_t i = call->first; i < call->first + call->rows; i++) {
        msp_look_row_at(out, l, i);
        if (out->tensor && strncmp(out->section, "output", 6) == 0)
            return true;
    }
    return false;
}

static void
print_call_line(FILE *out, const msp_look *l, size_t i)
{
    char in[32] = "-", given[32] = "-";
    msp_look_call call;
    msp_look_row row;
    size_t width;

    msp_look_call_at(&call, l, i);
    width = msp_text_width(call.name.p, call.name.len);
    fputs("  ", out);
    msp_show_text(out, call.nan || call.inf ? MSP_STYLE_RED : MSP_STYLE_PLAIN, call.name);
    fprintf(out, "%*s", width < NAME_MAX_WIDTH ? (int)(NAME_MAX_WIDTH - width) : 1, "");
    if (!isnan(call.norm_in))
        msp_show_number(in, call.norm_in);
    if (!isnan(call.norm_out))
        msp_show_number(given, call.norm_out);
    fprintf(out, "%11s %11s  ", in, given);
    if (call.nan || call.inf)
        msp_term_put(out, MSP_STYLE_RED, "%s%s%s ", call.nan ? "NaN" : "", call.nan && call.inf ? ", " : "",
                     call.inf ? "inf" : "");
    if (first_given(&row, l, &call)) {
        msp_show_text(out, MSP_STYLE_DIM, row.dtype);
        fputc(' ', out);
        msp_show_text(out, MSP_STYLE_DIM, row.shape);
    }
    fputc('\n', out);
}

static void
print_calls(FILE *out, const msp_look *l, const msp_look_summary *s, bool all)
{
    size_t n = (size_t)s->calls, shown = all || n <= SOME_CALLS ? n : SOME_CALLS;

    if (n == 0)
        return;
    fprintf(out, "\n  %-*s%11s %11s  gives\n", NAME_MAX_WIDTH, "Call", "norm in", "norm out");
    for (size_t i = 0; i < shown; i++)
        print_call_line(out, l, i);
    if (shown < n)
        fprintf(out, "  ... and %zu calls more (--all lists them)\n", n - shown);
}

void
msp_show_dump(FILE *out, msp_look *l, const char *place, bool all)
{
    const msp_look_summary *s = msp_look_summary_of(l);

    fputc('\n', out);
    print_file(out, s, place);
    print_sizes(out, s);
    print_find(out, l, "NaN", &s->nan);
    print_find(out, l, "inf", &s->inf);
    print_growth(out, l, s);
    print_largest(out, l, s);
    print_kinds(out, s);
    print_calls(out, l, s, all);
}

/* ---- several dumps ------------------------------------------------------------------------------------------- */

enum { PLACE_WIDTH = 24 };

void
msp_show_dump_line_head(FILE *out)
{
    fprintf(out, "\n  %-*s%10s%12s%10s%8s%8s  %s\n", PLACE_WIDTH, "", "calls", "tensors", "size", "NaN", "inf",
            "largest growth");
}

void
msp_show_dump_line(FILE *out, const msp_look *l, const char *place)
{
    const msp_look_summary *s = msp_look_summary_of(l);
    size_t width = msp_text_width(place, strlen(place));
    char a[32], b[32], c[32];

    fputs("  ", out);
    put_safe(out, MSP_STYLE_PLAIN, place);
    fprintf(out, "%*s%10s%12s%10s", width < PLACE_WIDTH ? (int)(PLACE_WIDTH - width) : 1, "",
            msp_format_count(a, s->calls), msp_format_count(b, s->tensors), msp_format_bytes(c, (double)s->bytes));
    msp_term_put(out, s->nan.rows > 0 ? MSP_STYLE_RED : MSP_STYLE_PLAIN, "%8lld", (long long)s->nan.rows);
    msp_term_put(out, s->inf.rows > 0 ? MSP_STYLE_RED : MSP_STYLE_PLAIN, "%8lld", (long long)s->inf.rows);
    if (s->ngrowth > 0) {
        msp_look_call call;

        msp_look_call_at(&call, l, s->growth[0].call);
        fprintf(out, "  %.3gx ", s->growth[0].out / s->growth[0].in);
        msp_show_text(out, MSP_STYLE_PLAIN, call.name);
    }
    fputs(s->cut ? "  cut off\n" : "\n", out);
}

/* ---- for programs -------------------------------------------------------------------------------------------- */

static void
json_stack(msp_jsonout *j, msp_look *l, size_t call)
{
    int64_t depth = msp_look_depth(l, call);

    if (depth < 0) {
        msp_jsonout_text(j, "stack", NULL);
        return;
    }
    msp_jsonout_open(j, "stack", '[');
    for (int64_t i = 0; i < depth; i++)
        msp_jsonout_text(j, NULL, msp_look_frame(l, call, (size_t)i));
    msp_jsonout_close(j, ']');
}

static void
json_find(msp_jsonout *j, msp_look *l, const char *key, const msp_look_find *f)
{
    static const char *const origins[] = {"nowhere", "made", "taken", "unclear"};
    msp_look_call call;
    msp_look_row row;

    if (f->origin == MSP_LOOK_NOWHERE) {
        msp_jsonout_text(j, key, NULL);
        return;
    }
    msp_look_call_at(&call, l, f->call);
    msp_look_row_at(&row, l, f->row);
    msp_jsonout_open(j, key, '{');
    msp_show_json_text(j, "call", call.name);
    msp_show_json_text(j, "tensor", row.name);
    msp_jsonout_text(j, "origin", origins[f->origin]);
    msp_jsonout_int(j, "tensors", f->rows);
    json_stack(j, l, f->call);
    msp_jsonout_close(j, '}');
}

static void
json_counts(msp_jsonout *j, const char *key, const msp_look_count *list, size_t n, bool types)
{
    msp_jsonout_open(j, key, '[');
    for (size_t i = 0; i < n; i++) {
        msp_jsonout_open(j, NULL, '{');
        msp_show_json_text(j, "name", list[i].name);
        msp_jsonout_int(j, types ? "tensors" : "calls", list[i].count);
        if (types) {
            msp_jsonout_int(j, "elements", list[i].elements);
            msp_jsonout_int(j, "bytes", list[i].bytes);
        } else {
            msp_jsonout_bool(j, "module", list[i].module);
        }
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_close(j, ']');
}

static void
json_norm(msp_jsonout *j, const char *key, double v)
{
    if (isnan(v))
        msp_jsonout_text(j, key, NULL);
    else
        msp_jsonout_float(j, key, v);
}

static void
json_calls(msp_jsonout *j, const msp_look *l, size_t n)
{
    msp_jsonout_open(j, "list", '[');
    for (size_t i = 0; i < n; i++) {
        msp_look_call call;

        msp_look_call_at(&call, l, i);
        msp_jsonout_open(j, NULL, '{');
        msp_show_json_text(j, "name", call.name);
        msp_jsonout_int(j, "tensors", call.tensors);
        msp_jsonout_int(j, "bytes", call.bytes);
        json_norm(j, "norm_in", call.norm_in);
        json_norm(j, "norm_out", call.norm_out);
        msp_jsonout_bool(j, "nan", call.nan);
        msp_jsonout_bool(j, "inf", call.inf);
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_close(j, ']');
}

static void
json_tops(msp_jsonout *j, const msp_look *l, const msp_look_summary *s)
{
    msp_look_call call;
    msp_look_row row;

    msp_jsonout_open(j, "growth", '[');
    for (size_t i = 0; i < s->ngrowth; i++) {
        msp_look_call_at(&call, l, s->growth[i].call);
        msp_jsonout_open(j, NULL, '{');
        msp_show_json_text(j, "call", call.name);
        msp_jsonout_float(j, "norm_in", s->growth[i].in);
        msp_jsonout_float(j, "norm_out", s->growth[i].out);
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_close(j, ']');
    msp_jsonout_open(j, "largest", '[');
    for (size_t i = 0; i < s->nlargest; i++) {
        msp_look_row_at(&row, l, s->largest[i]);
        msp_jsonout_open(j, NULL, '{');
        msp_show_json_text(j, "tensor", row.name);
        msp_show_json_text(j, "type", row.dtype);
        msp_show_json_text(j, "shape", row.shape);
        msp_jsonout_int(j, "bytes", row.bytes);
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_close(j, ']');
}

void
msp_show_dump_json(msp_jsonout *j, msp_look *l, const msp_dump_place *place)
{
    const msp_look_summary *s = msp_look_summary_of(l);

    msp_jsonout_open(j, NULL, '{');
    msp_jsonout_text(j, "path", s->path);
    msp_jsonout_number(j, "step", place->step);
    msp_jsonout_number(j, "rank", place->rank);
    msp_jsonout_text(j, "error", NULL);
    msp_jsonout_text(j, "framework", msp_framework_name(s->framework));
    msp_jsonout_text(j, "task", s->task);
    msp_jsonout_text(j, "level", s->level);
    msp_jsonout_int(j, "size", (int64_t)s->size);
    if (s->cut)
        msp_jsonout_int(j, "cut_off", (int64_t)s->cut_at);
    else
        msp_jsonout_text(j, "cut_off", NULL);
    msp_jsonout_int(j, "calls", s->calls);
    msp_jsonout_int(j, "backward", s->backward);
    msp_jsonout_int(j, "modules", s->modules);
    msp_jsonout_int(j, "rows", s->rows);
    msp_jsonout_int(j, "tensors", s->tensors);
    msp_jsonout_int(j, "elements", s->elements);
    msp_jsonout_int(j, "bytes", s->bytes);
    msp_jsonout_int(j, "files", s->files);
    msp_jsonout_int(j, "missing_files", s->missing);
    msp_jsonout_bool(j, "statistics", s->has_stats);
    json_counts(j, "types", s->types, s->ntypes, true);
    json_counts(j, "kinds", s->kinds, s->nkinds, false);
    json_find(j, l, "nan", &s->nan);
    json_find(j, l, "inf", &s->inf);
    json_tops(j, l, s);
    json_calls(j, l, (size_t)s->calls);
    msp_jsonout_close(j, '}');
}
