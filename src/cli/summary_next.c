/* summary_next.c - the end of the summary: what to run next, ready to be copied. */
#include "summary_parts.h"

/* What the user asked for is kept; how it is to be told is not, nor the analysis when the rows are wanted instead. */
static bool
is_kept(const msp_opt *o, bool analyze)
{
    return o->id != MSP_OPT_INPUT && o->id != MSP_OPT_JSON && o->id != MSP_OPT_FAIL_ON &&
           (analyze || o->id != MSP_OPT_DIFF_ANALYZE);
}

/* The command that was given, with one more option; without analyze, -da is taken out. */
static void
put_command(FILE *out, const msp_summary *s, bool analyze, const char *more)
{
    const char *input = msp_args_get(s->args, MSP_OPT_INPUT, NULL);
    const char *framework = msp_args_get(s->args, MSP_OPT_FRAMEWORK, NULL);

    print_label(out, "Next");
    fputs("msprobe ", out);
    if (framework != NULL)
        fprintf(out, "-f %s ", framework);
    fputs(input != NULL ? "compare -i" : "compare", out);
    for (size_t i = 0; i < (input != NULL ? 1 : s->args->noperands); i++) {
        fputc(' ', out);
        msp_shell_put(out, input != NULL ? input : s->args->operands[i]);
    }
    for (size_t i = 0; i < msp_opts_compare.count; i++) {
        const msp_opt *o = &msp_opts_compare.opts[i];
        const char *value = msp_args_get(s->args, o->id, NULL);

        if (!msp_args_has(s->args, o->id) || !is_kept(o, analyze))
            continue;
        fprintf(out, " %s", o->brief != NULL ? o->brief : o->name);
        if (value != NULL) {
            fputc(' ', out);
            msp_shell_put(out, value);
        }
    }
    fprintf(out, " %s\n", more);
}

/* "Functional.relu.0" of "Functional.relu.0.forward": what the collector's "list" wants. */
static void
put_redump_advice(FILE *out, const msp_summary *s, const msp_compare_suspect *suspect)
{
    const msp_compare_result *r = s->result;
    const char *api = r->nfirst > 0 ? r->first[0].op_name : suspect->api != NULL ? suspect->api : suspect->npu_name;

    print_label(out, "Next");
    fputs("dump its tensors in both runs and compare again (config.json):\n", out);
    print_label(out, "");
    fputs("\"task\": \"tensor\",\n", out);
    print_label(out, "");
    fputs("\"tensor\": {\"list\": [\"", out);
    put_safe(out, MSP_STYLE_PLAIN, api);
    fputs("\"]}\n", out);
}

/* The tensors are there: all about the call that is blamed. */
static void
put_explain(FILE *out, const msp_summary *s, const msp_compare_suspect *suspect)
{
    print_label(out, "Next");
    fputs("msprobe explain ", out);
    msp_shell_put(out, s->options->npu_path);
    fputc(' ', out);
    msp_shell_put(out, s->options->bench_path);
    fputc(' ', out);
    msp_shell_put(out, suspect->api != NULL ? suspect->api : suspect->npu_name);
    fputs(s->options->fuzzy ? " -f\n" : "\n", out);
}

/* Older dumps have their stacks and statistics in one file. */
static void
put_parse_command(FILE *out, const msp_compare_pair *p)
{
    print_label(out, "Next");
    fputs("msprobe parse ", out);
    msp_shell_put(out, p->npu_path);
    fputc(' ', out);
    msp_shell_put(out, p->answer.blamed.api != NULL ? p->answer.blamed.api : p->answer.blamed.npu_name);
    fputc('\n', out);
}

/* Saved points stand in no order of calls: there is no analysis of them, and no colours. */
static void
put_debug_advice(FILE *out, const msp_compare_pair *p)
{
    if (p->has_tensors)
        return;
    print_label(out, "Next");
    fputs("save the tensors in both runs and compare again (config.json):\n", out);
    print_label(out, "");
    fputs("\"task\": \"tensor\"\n", out);
}

static bool
has_mapping(const msp_compare_options *opt)
{
    return opt->data_mapping != NULL || opt->api_mapping != NULL || opt->cell_mapping != NULL ||
           opt->layer_mapping != NULL;
}

/* A fifth of the rows is more than the few calls that only one device has. */
static bool
many_without_partner(const msp_compare_result *r)
{
    int64_t unmatched = 0, rows = 0;

    for (size_t i = 0; i < r->npairs; i++) {
        unmatched += r->pairs[i].counts.unmatched;
        rows += r->pairs[i].counts.rows;
    }
    return unmatched * 5 > rows;
}

void
msp_summary_next(FILE *out, const msp_summary *s, const msp_compare_pair *first)
{
    const msp_compare_result *r = s->result;
    const msp_framework *f = r->pairs[0].framework;

    if (s->options->has_rank_id || s->options->has_step_id || s->options->common)
        return; /* static graphs: there is no other way to look at them */
    if (many_without_partner(r) && !has_mapping(s->options) && f[0] == MSP_MINDSPORE && f[1] == MSP_PYTORCH)
        put_command(out, s, true, "-lm");
    else if (many_without_partner(r) && !has_mapping(s->options) && !s->options->fuzzy)
        put_command(out, s, true, "-f");
    else if (first == NULL)
        return;
    else if (first->kind == MSP_DUMP_DEBUG)
        put_debug_advice(out, first);
    else if (first->kind == MSP_DUMP_LEGACY)
        put_parse_command(out, first);
    else if (r->npairs > 1 && !s->options->diff_analyze)
        put_command(out, s, true, "-da");
    else if (!first->has_tensors)
        put_redump_advice(out, s, &first->answer.blamed);
    else if (s->options->diff_analyze)
        put_command(out, s, false, "-hl");
    else
        put_explain(out, s, &first->answer.blamed);
}
