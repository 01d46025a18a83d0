/* cmd_show.c - msprobe show: one dump, one of its calls, or a file of tensors. */
#include "show.h"

enum { MAX_THREADS = 1024, SOME_HITS = 20, NSUGGESTIONS = 3 };

typedef struct showing {
    const msp_args *args;
    const char *path, *name; /* name NULL: the whole dump */
    bool json, all, many;    /* many: several dumps */
    msp_jsonout j;
    size_t found;  /* calls that name means */
    size_t failed; /* dumps that cannot be read */
    msp_status status;
    msp_error err; /* of the first of them */
} showing;

/* ---- one dump ------------------------------------------------------------------------------------------------ */

static msp_status
show_calls(showing *s, msp_look *l, const msp_dump_place *place, const char *label, msp_error *err)
{
    size_t *calls, n, shown;
    msp_status st = msp_look_search(&calls, &n, l, s->name, err);

    if (st != MSP_OK)
        return st;
    shown = s->all || s->json || n <= SOME_HITS ? n : SOME_HITS;
    for (size_t i = 0; i < shown; i++) {
        if (s->json)
            msp_show_call_json(&s->j, l, calls[i], place);
        else
            msp_show_call(stdout, l, calls[i], label);
    }
    if (shown < n)
        printf("\n  ... and %zu calls more whose names have '%s' in them (--all shows them)\n", n - shown, s->name);
    s->found += n;
    msp_look_free(calls);
    return MSP_OK;
}

static msp_status
show_place(showing *s, msp_look *l, const msp_dump_place *place, msp_error *err)
{
    char label[512];

    msp_show_label(label, sizeof(label), place);
    if (s->name != NULL)
        return show_calls(s, l, place, label, err);
    if (s->json)
        msp_show_dump_json(&s->j, l, place);
    else if (s->many)
        msp_show_dump_line(stdout, l, label);
    else
        msp_show_dump(stdout, l, "", s->all);
    return MSP_OK;
}

static void
json_failed(showing *s, const msp_dump_place *place, const msp_error *err)
{
    msp_jsonout_open(&s->j, NULL, '{');
    msp_jsonout_text(&s->j, "path", place->path);
    msp_jsonout_text(&s->j, "error", err->message);
    msp_jsonout_close(&s->j, '}');
}

/* One that cannot be read is named, the others are shown. */
static void
open_and_show(showing *s, const msp_dump_place *place)
{
    msp_look *l = NULL;
    msp_error err;
    msp_status st = msp_look_open(&l, place, &err);

    if (st == MSP_OK)
        st = show_place(s, l, place, &err);
    if (st == MSP_OK)
        st = msp_look_check(l, &err);
    msp_look_close(l);
    if (st == MSP_OK)
        return;
    if (s->json && s->name == NULL)
        json_failed(s, place, &err);
    if (s->failed++ == 0) {
        s->status = st;
        s->err = err;
    } else {
        fprintf(stderr, "error: %s\n", err.message);
    }
}

/* ---- a name that is not there -------------------------------------------------------------------------------- */

static msp_exit_code
not_found(const showing *s, const msp_dump_layout *layout)
{
    msp_look_text near[NSUGGESTIONS];
    msp_look *l = NULL;
    msp_error err;
    char text[768];
    size_t n = 0, used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < layout->count && l == NULL; i++)
        if (msp_look_open(&l, &layout->places[i], NULL) == MSP_OK)
            n = msp_look_suggest(near, NSUGGESTIONS, l, s->name);
    for (size_t i = 0; i < n && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s'%.*s'", i > 0 ? ", " : "",
                                 (int)(near[i].len < 200 ? near[i].len : 200), near[i].p);
    msp_look_close(l);
    if (n > 0)
        return msp_cli_fail(msp_error_set(&err, MSP_E_NOT_FOUND, "%s: no call '%.200s'; did you mean %s?", s->path,
                                          s->name, text),
                            &err);
    return msp_cli_fail(msp_error_set(&err, MSP_E_NOT_FOUND,
                                      "%s: no call has '%.200s' in its name; msprobe show %s --all lists them", s->path,
                                      s->name, s->path),
                        &err);
}

/* ---- all dumps ----------------------------------------------------------------------------------------------- */

static void
begin_output(showing *s)
{
    s->j = (msp_jsonout){.out = stdout, .first = true};
    if (!s->json) {
        if (s->many && s->name == NULL)
            msp_show_dump_line_head(stdout);
        return;
    }
    msp_jsonout_open(&s->j, NULL, '{');
    msp_jsonout_int(&s->j, "version", 1);
    msp_jsonout_text(&s->j, "kind", s->name != NULL ? "calls" : "dump");
    msp_jsonout_text(&s->j, "path", s->path);
    if (s->name != NULL)
        msp_jsonout_text(&s->j, "name", s->name);
    msp_jsonout_open(&s->j, s->name != NULL ? "calls" : "dumps", '[');
}

static void
end_output(showing *s)
{
    if (s->json) {
        msp_jsonout_close(&s->j, ']');
        msp_jsonout_close(&s->j, '}');
    } else if (s->many && s->name == NULL) {
        puts("\n  msprobe show PATH of one of them shows its calls, the first NaN and the largest growth");
    }
}

static msp_exit_code
show_dumps(showing *s)
{
    msp_dump_layout layout;
    msp_exit_code code = MSP_EXIT_OK;
    msp_status st = msp_dump_find(&layout, s->path, &s->err);

    if (st != MSP_OK)
        return msp_cli_fail(st, &s->err);
    s->many = layout.count > 1;
    begin_output(s);
    for (size_t i = 0; i < layout.count; i++)
        open_and_show(s, &layout.places[i]);
    end_output(s);
    if (s->failed > 0)
        code = msp_cli_fail(s->status, &s->err);
    else if (s->name != NULL && s->found == 0)
        code = not_found(s, &layout);
    msp_dump_layout_release(&layout);
    return code;
}

static bool
is_table(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot != NULL && (strcmp(dot, ".xlsx") == 0 || strcmp(dot, ".csv") == 0);
}

msp_exit_code
msp_cmd_show(const msp_args *args)
{
    showing s = {.args = args,
                 .path = args->noperands > 0 ? args->operands[0] : NULL,
                 .name = args->noperands > 1 ? args->operands[1] : NULL,
                 .json = msp_args_has(args, MSP_OPT_JSON),
                 .all = msp_args_has(args, MSP_OPT_ALL)};
    int threads;
    msp_status st = s.path != NULL ? msp_args_number(&threads, args, MSP_OPT_THREADS, "--threads", MAX_THREADS, &s.err)
                                   : msp_error_set(&s.err, MSP_E_INVALID,
                                                   "what to show? give a dump (a dump.json, the folder of a rank, a "
                                                   "step or all steps) or a tensor file");

    if (st == MSP_OK && is_table(s.path))
        st = msp_error_set(&s.err, MSP_E_INVALID, "%s is a table; msprobe report makes its page", s.path);
    if (st != MSP_OK)
        return msp_cli_usage(args->command, &s.err);
    return msp_look_is_dump(s.path) ? show_dumps(&s) : msp_show_tensor_file(args, s.path, s.name);
}
