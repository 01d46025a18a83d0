/* errors.c - the numbers of one row on the screen: its errors, its worst element, and what is known of the inputs. */
#include <math.h>
#include "summary_parts.h"

/* Six digits say enough on a screen; the table has all of them. */
static void
put_real_errors(FILE *out, const msp_metrics *m)
{
    double n = m->count > 0 ? (double)m->count : 1;

    if (m->mismatches > 0) {
        char buf[32], all[32];

        print_label(out, "Errors");
        fprintf(out, "%s of %s elements NaN or inf on one side only\n", msp_format_count(buf, m->mismatches),
                msp_format_count(all, m->count));
        if (m->mismatches >= m->count)
            return; /* nothing is left to be measured */
    }
    print_label(out, m->mismatches > 0 ? "" : "Errors");
    fprintf(out, "%sCosine %.6g, MaxAbsErr %.6g, MaxRelativeErr %.6g\n", m->mismatches > 0 ? "the others: " : "",
            m->cosine, m->max_abs_err, m->max_rel_err);
    print_label(out, "");
    fprintf(out, "%.4g%% of the elements within 0.001, %.4g%% within 0.005\n", 100 * (double)m->below_1e3 / n,
            100 * (double)m->below_5e3 / n);
}

/* A cell's number in six digits; other cells ("N/A", "Nan", "inf%") as they are. */
static void
put_cell(FILE *out, const char *cell, const char *unit)
{
    char *end;
    double v = cell != NULL ? strtod(cell, &end) : 0;

    if (cell == NULL || cell[0] == '\0')
        fputs("-", out);
    else if (strcmp(end, unit) == 0 && isfinite(v))
        fprintf(out, "%.6g%s", v, unit);
    else
        put_safe(out, MSP_STYLE_PLAIN, cell);
}

static void
put_statistic_errors(FILE *out, const msp_compare_suspect *s)
{
    static const char *const names[MSP_NSTATS] = {"max", "min", "mean", "l2norm"};

    for (int i = 0; i < MSP_NSTATS; i++) {
        if (s->stats[0][i] == NULL)
            continue;
        print_label(out, i == 0 ? "Errors" : "");
        fprintf(out, "%-7s NPU ", names[i]);
        put_cell(out, s->stats[0][i], "");
        fputs(", bench ", out);
        put_cell(out, s->stats[1][i], "");
        fputs(", off by ", out);
        put_cell(out, s->rel[i], "%");
        fputc('\n', out);
    }
}

static void
put_worst(FILE *out, const msp_compare_suspect *s)
{
    if (!s->has_worst)
        return;
    print_label(out, "Worst element");
    fputc('[', out);
    for (int32_t i = 0; i < s->worst_ndim; i++)
        fprintf(out, "%s%lld", i > 0 ? ", " : "", (long long)s->worst_coords[i]);
    fprintf(out, "]: NPU %s, bench %s\n", s->worst_value[0], s->worst_value[1]);
}

/* A number or a text that the two scripts pass differently explains more than tensors do. */
static void
put_argument(FILE *out, const msp_compare_suspect *s)
{
    if (s->argument == NULL)
        return;
    print_label(out, "Argument");
    put_safe(out, MSP_STYLE_YELLOW, s->argument);
    fputc('\n', out);
}

/* Was the call measured by itself, so that what its inputs inherited is known apart from what it adds? */
static bool
is_measured_alone(const msp_compare_pair *p, const msp_compare_suspect *s)
{
    const msp_pair_verdict *v = &p->verdict;

    return v->nsuspects > 0 && s->api != NULL && strcmp(v->suspects[0].api, s->api) == 0 &&
           !isnan(v->suspects[0].local);
}

/* Said only as far as it was checked: "this call" follows from inputs that were compared, all of them. */
static void
put_inputs(FILE *out, const msp_compare_pair *p, const msp_compare_suspect *s)
{
    static const char *const equal[] = {"equal to the bit", "equal in all their statistics",
                                        "equal by their checksums"};
    const char *so = s->argument != NULL || is_measured_alone(p, s) ? "" : ": this call makes the difference";
    char text[400];

    switch (s->inputs) {
    case MSP_INPUTS_EQUAL:
        snprintf(text, sizeof(text), "%s%s", equal[p->mode], so);
        break;
    case MSP_INPUTS_FINE:
        snprintf(text, sizeof(text), "differ by %.2g at most, the result by %.2g%s", s->input_error, s->error, so);
        break;
    case MSP_INPUTS_WRONG:
        if (s->input == NULL)
            snprintf(text, sizeof(text), "this is an input itself: the difference comes from before");
        else if (p->mode == MSP_MODE_MD5)
            snprintf(text, sizeof(text), "%.200s is not the same: the difference comes from before", s->input);
        else
            snprintf(text, sizeof(text), "%.200s differs by %.2g, the result by %.2g%s", s->input, s->input_error,
                     s->error, is_measured_alone(p, s) ? "" : ": not this call alone");
        break;
    default:
        snprintf(text, sizeof(text), "could not all be compared");
    }
    put_sentence(out, "Its inputs", MSP_STYLE_PLAIN, text);
}

/* A plain value has no errors: both are told as the argument that differs. */
static bool
is_plain(const msp_compare_suspect *s)
{
    return s->argument != NULL && !s->argument_before && s->dtype[0] != NULL && s->dtype[0][0] == '<';
}

void
msp_summary_errors(FILE *out, const msp_compare_pair *p, const msp_compare_suspect *s)
{
    if (s->has_metrics) {
        put_real_errors(out, &s->metrics);
    } else if (p->mode == MSP_MODE_STATISTICS && !is_plain(s)) {
        put_statistic_errors(out, s);
    } else if (s->md5[0] != NULL) {
        print_label(out, "Checksums");
        fprintf(out, "NPU %s, bench %s\n", s->md5[0], s->md5[1] != NULL ? s->md5[1] : "-");
    }
    put_worst(out, s);
    put_argument(out, s);
    if (p->kind != MSP_DUMP_DEBUG && !is_plain(s)) /* a saved point has none */
        put_inputs(out, p, s);
}
