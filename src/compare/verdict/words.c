/* words.c - the sentences of a verdict. What they say was checked: each follows from the sign that gave the result
 * away. */
#include <math.h>
#include <stdlib.h>
#include "compare/verdict/ordinary.h"
#include "compare/verdict/verdict.h"
#include "core/alloc.h"

/* "output.0" stands for a result of the forward call, or for a gradient of the backward call. */
static void
write_result(msp_buf *b, const msp_evidence *e)
{
    msp_buf_printf(b, "its %s %.*s", e->nature.backward ? "gradient" : "result", (int)e->at.len, e->at.p);
}

static const char *
what_class(msp_call_class c)
{
    return c == MSP_CALL_MATMUL ? "matrix products" : c == MSP_CALL_VECTOR ? "calls" : "copies";
}

static void
write_replayed(msp_buf *b, const msp_verdict_suspect *s, const msp_evidence *e)
{
    const msp_local *a = e->local[0];

    switch (e->sign) {
    case MSP_SIGN_NONFINITE:
        msp_buf_printf(b, " is NaN or inf in %lld of %lld elements where its inputs give a number", (long long)a->bad,
                       (long long)a->count);
        break;
    case MSP_SIGN_BENCH_NONFINITE:
        msp_buf_text(b, " is NaN or inf in the bench where its inputs give a number: it is the bench that is wrong");
        break;
    case MSP_SIGN_BENCH:
        msp_buf_printf(b, " is off by %.2g in the bench, and by %.2g here: it is the bench that is wrong",
                       s->local_bench, s->local);
        break;
    case MSP_SIGN_INEXACT:
        msp_buf_printf(b, " must be exact, and %lld of %lld elements are not", (long long)a->differ,
                       (long long)a->count);
        break;
    case MSP_SIGN_ROUNDING:
        msp_buf_printf(b, " is not correctly rounded in %lld of %lld elements, as the bench's is and IEEE 754 demands",
                       (long long)a->differ, (long long)a->count);
        break;
    case MSP_SIGN_CUT:
    case MSP_SIGN_BIAS:
        msp_buf_printf(b,
                       " is off by %.2g of a unit in the last place on average, always to one side: cut off instead of "
                       "rounded",
                       fabs(a->bias));
        break;
    case MSP_SIGN_FACTOR:
        msp_buf_printf(b, " is %.7g times what its inputs give, which no other call of its kind is", 1 + a->slope);
        break;
    case MSP_SIGN_OPERANDS:
        msp_buf_printf(b,
                       " is %.7g times what its operands give, and the bench's is not: they are cut off to 16 bits and "
                       "not rounded",
                       1 + a->slope);
        break;
    case MSP_SIGN_UNLIKE:
        msp_buf_printf(b,
                       " is not correctly rounded in %.0f %% of its elements, the other %s in %.1f %% at the most: it "
                       "computes less exactly than they do",
                       100 * msp_evidence_share(a), what_class(e->nature.cls), 100 * fmax(0, e->peer_share));
        break;
    case MSP_SIGN_ELEMENT:
        msp_buf_printf(b, ": element %lld is off by %.2g, where %.2g may be expected of a call",
                       (long long)a->max_index, a->max, s->expected);
        break;
    case MSP_SIGN_SAVED:
        msp_buf_printf(b, ": this call adds %.2g, and its gradients show that what it kept for them is wrong",
                       s->local);
        break;
    default:
        msp_buf_printf(b, ": this call adds %.2g, it inherited %.2g; the bench adds %.2g, and %.2g may be expected",
                       s->local, s->inherited, s->local_bench, s->expected);
    }
}

/* Only the NPU run makes this call: nothing is inherited, and what this machine's torch makes of it is the measure. */
static void
write_alone(msp_buf *b, const msp_verdict_suspect *s)
{
    msp_buf_printf(b,
                   ": this call, which the bench does not make, adds %.2g; torch on this machine adds %.2g, and %.2g "
                   "may be expected",
                   s->local, s->local_bench, s->expected);
}

static int
short_of(msp_str api)
{
    msp_str end = MSP_STR(".forward");

    return (int)(msp_str_ends(api, end) ? api.len - end.len : api.len);
}

/* "Tensor.transpose.3 to Torch.matmul.1" */
static void
write_calls(msp_buf *b, msp_str first, msp_str last)
{
    msp_buf_printf(b, "%.*s", short_of(first), first.p);
    if (!msp_str_eq(first, last))
        msp_buf_printf(b, " to %.*s", short_of(last), last.p);
}

static const char *
does(msp_str first, msp_str last)
{
    return msp_str_eq(first, last) ? "does" : "do";
}

static void
write_instead(msp_buf *b, const msp_evidence *e)
{
    msp_str last = msp_evidence_name(e);

    write_calls(b, e->instead[0], last);
    msp_buf_printf(b, " %s not compute what the bench's ", does(e->instead[0], last));
    write_calls(b, e->instead[1], e->bench);
    msp_buf_printf(b, " %s: what comes out ", does(e->instead[1], e->bench));
    if (e->nonfinite)
        msp_buf_text(b, "is NaN or inf on one side only, and what goes in is not");
    else
        msp_buf_printf(b, "differs by %.2g where what goes in differs by %.2g and rounding explains %.2g", e->diff_out,
                       e->diff_in, e->expected);
}

/* "argmax chose 17 instead of 4 in 3 of 128 rows; the two values differ by 0.4x the expected error" */
static void
write_flip(msp_buf *b, msp_str op, const msp_flip *f)
{
    const char *most = f->flipped > 1 ? "at most " : "";

    if (f->what == MSP_DECIDES_POSITION)
        msp_buf_printf(b, "%.*s chose %lld instead of %lld in %lld of %lld rows", (int)op.len, op.p, (long long)f->mine,
                       (long long)f->other, (long long)f->flipped, (long long)f->places);
    else
        msp_buf_printf(b, "%.*s fell the other way in %lld of %lld elements", (int)op.len, op.p, (long long)f->flipped,
                       (long long)f->places);
    if (f->measured > 0)
        msp_buf_printf(b, "; the two values differ by %s%.2gx the expected error", most, f->times);
}

static const char *
statistic_name(int stat)
{
    return stat == MSP_STAT_MAX    ? "maximum"
           : stat == MSP_STAT_MIN  ? "minimum"
           : stat == MSP_STAT_MEAN ? "mean"
                                   : "norm";
}

static void
write_grown(msp_buf *b, const msp_evidence *e)
{
    if (e->sign == MSP_SIGN_CHOICE) {
        msp_buf_text(b, ": ");
        write_flip(b, msp_verdict_operation(msp_evidence_name(e)), e->flip);
        msp_buf_text(b, ", which no error of what it took explains");
    } else if (e->nonfinite)
        msp_buf_text(b, " is NaN or inf on one side only, and what it took is not");
    else if (e->sign == MSP_SIGN_LAW)
        msp_buf_printf(b,
                       ": its sum is off by %.2g of its norm from what this run's own inputs give, the bench's is not",
                       e->seen.law_off);
    else if (e->sign == MSP_SIGN_SAVED)
        msp_buf_text(b, ": its gradients are wrong, though what came in is not: what it kept for them must be");
    else if (e->sign == MSP_SIGN_ORDER)
        msp_buf_printf(
            b,
            " has the bench's statistics, but %.*s, which takes it, differs by %.2g though its own sums hold: "
            "elements must stand in other places",
            (int)e->shown->name_len, e->shown->name, e->shown->diff_out);
    else if (e->told >= 0)
        msp_buf_printf(b, " differs by %.2g in its %s, where its inputs' difference and rounding explain %.2g",
                       e->diff_out, statistic_name(e->told), e->expected);
    else
        msp_buf_printf(b, " differs by %.2g where its inputs differ by %.2g and rounding explains %.2g", e->diff_out,
                       e->diff_in, e->expected);
}

static bool
add_noise_reason(msp_verdict_suspect *s, const msp_evidence *e)
{
    msp_buf b = {0};

    if (!msp_evidence_replayed(e) || e->noise < 1 || e->sign != MSP_SIGN_ERROR)
        return true;
    msp_buf_printf(&b, "the other %s of this device add about %.2g", what_class(e->nature.cls),
                   e->noise * msp_local_roundoff(e->dtype));
    return msp_verdict_add_take(&s->reasons, &b);
}

bool
msp_verdict_words_suspect(msp_verdict_suspect *s, const msp_evidence *e)
{
    msp_buf b = {0};

    if (e->steps > 0)
        write_instead(&b, e);
    else
        write_result(&b, e);
    if (e->steps > 0)
        ;
    else if (msp_evidence_replayed(e) && msp_evidence_is_alone(e) && e->sign == MSP_SIGN_ERROR)
        write_alone(&b, s);
    else if (msp_evidence_replayed(e))
        write_replayed(&b, s, e);
    else
        write_grown(&b, e);
    s->reason = msp_verdict_take(&b);
    if (s->reason == NULL || !add_noise_reason(s, e))
        return false;
    return true;
}

/* What must be known to read a result's numbers. */
bool
msp_verdict_words_result(msp_verdict_result *r, const msp_evidence *e)
{
    msp_buf b = {0};

    if (e->steps > 0) {
        msp_buf_text(&b, "what ");
        write_calls(&b, e->instead[0], msp_evidence_name(e));
        msp_buf_text(&b, " give in the place of the bench's ");
        write_calls(&b, e->instead[1], e->bench);
    } else if (e->flip != NULL && e->chose) {
        write_flip(&b, msp_verdict_operation(msp_evidence_name(e)), e->flip);
    } else if (msp_evidence_is_alone(e) && msp_evidence_replayed(e)) {
        msp_buf_text(&b, "the bench makes no such call: torch on this machine stands for it");
    } else {
        return true;
    }
    r->note = msp_verdict_take(&b);
    return r->note != NULL;
}

bool
msp_verdict_words_start(msp_verdict_suspect *s, const msp_start *start)
{
    msp_buf b = {0};

    if (start->changed.len > 0)
        msp_buf_printf(&b,
                       "%.*s was changed before %.*s took it as %.*s, by code that is not recorded: it differs by %.2g",
                       (int)start->changed.len, start->changed.p, (int)start->api.len, start->api.p, (int)start->at.len,
                       start->at.p, start->diff);
    else
        msp_buf_printf(&b, "the two runs do not start from the same %s: %.*s.%.*s differs by %.2g",
                       start->weights ? "weights" : "data", (int)start->api.len, start->api.p, (int)start->at.len,
                       start->at.p, start->diff);
    if (start->others > 0 && start->changed.len == 0)
        msp_buf_printf(&b, ", what else they begin with by %.2g", start->others);
    s->reason = msp_verdict_take(&b);
    return s->reason != NULL;
}

bool
msp_verdict_words_sentence(msp_pair_verdict *v)
{
    const msp_verdict_suspect *s = &v->suspects[0];
    msp_buf b = {0};

    switch (v->kind) {
    case MSP_VERDICT_SUSPECT:
        msp_buf_printf(&b, "%s: %s", s->api, s->reason);
        if (s->shape_text != NULL)
            msp_buf_printf(&b, "; %s", s->shape_text);
        break;
    case MSP_VERDICT_START:
        msp_buf_text(&b, s->reason);
        break;
    case MSP_VERDICT_MODELS:
        msp_buf_printf(&b, "these are different models or levels: %lld of %lld results have no partner",
                       (long long)(v->nunjudged > 0 ? v->unjudged[0].results : 0),
                       (long long)(v->judged + v->not_judged));
        break;
    case MSP_VERDICT_NONE:
        msp_buf_text(&b, "no result could be judged");
        if (v->nunjudged > 0)
            msp_buf_printf(&b, ": %s", v->unjudged[0].reason);
        break;
    case MSP_VERDICT_IDENTICAL:
        msp_buf_printf(&b, "Nothing wrong: %s of %lld calls %s",
                       v->basis == MSP_BASIS_STATISTICS ? "the statistics" : "the results", (long long)v->judged_calls,
                       "are identical");
        break;
    default:
        msp_buf_printf(&b, "Nothing wrong: %lld calls within rounding, largest %.2gx the expected error at %s",
                       (long long)v->judged_calls, v->largest, v->largest_at);
    }
    if (v->types != NULL)
        msp_buf_printf(&b, " (%s: judged by the coarser)", v->types);
    v->sentence = msp_verdict_take(&b);
    return v->sentence != NULL;
}

/* ---- facts about the device -------------------------------------------------------------------------------------- */

static int
compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Rounding both inputs of a product to p bits makes an error of about 2^-(p + 0.9) in its natural scale. */
static double
bits_of(const msp_evidence *e)
{
    return -log2(e->added * msp_local_roundoff(e->dtype)) - 0.9;
}

static bool
is_product(const msp_evidence *e, msp_dtype t)
{
    return e->not_judged == NULL && msp_evidence_replayed(e) && e->nature.cls == MSP_CALL_MATMUL && e->dtype == t &&
           e->n >= 16;
}

/* "matmul: about 11 significant bits in 48 of 48 calls, like TF32". */
static bool
add_bits_fact(msp_pair_verdict *v, const msp_evidence_list *list, double *room)
{
    size_t n = 0, alike = 0, results = 0;
    const char *like;
    double middle;
    msp_buf b = {0};

    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];

        results += is_product(e, MSP_F32);
        if (is_product(e, MSP_F32) && e->added > 8)
            room[n++] = bits_of(e);
    }
    if (n < 3 || n * 2 < results)
        return true;
    qsort(room, n, sizeof(*room), compare_doubles);
    middle = room[n / 2];
    for (size_t i = 0; i < n; i++)
        alike += fabs(room[i] - middle) <= 1;
    like = msp_ordinary_name(MSP_F32, middle);
    msp_buf_printf(&b, "matmul: about %.0f significant bits in %zu of %zu results%s%s", middle, alike, results,
                   like != NULL ? ", like " : "", like != NULL ? like : "");
    return msp_verdict_add_take(&v->facts, &b);
}

/* Partial sums that are stored in 16 bits leave results that are not correctly rounded. */
static bool
add_sums_fact(msp_pair_verdict *v, const msp_evidence_list *list, msp_dtype t, const char *name)
{
    size_t n = 0, results = 0;
    msp_buf b = {0};

    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];

        if (!is_product(e, t) || e->n < 64)
            continue;
        results++;
        n += (double)(e->local[0]->differ - e->local[1]->differ) > 0.1 * (double)e->local[0]->count;
    }
    if (n < 3)
        return true;
    msp_buf_printf(&b, "matmul: sums are rounded to %s on the way in %zu of %zu results", name, n, results);
    return msp_verdict_add_take(&v->facts, &b);
}

bool
msp_verdict_words_facts(msp_pair_verdict *v, const msp_evidence_list *list)
{
    double *room = msp_alloc_zero(list->count + 1, sizeof(*room));
    bool ok = room != NULL && add_bits_fact(v, list, room) && add_sums_fact(v, list, MSP_BF16, "bfloat16") &&
              add_sums_fact(v, list, MSP_F16, "float16");

    msp_free(room);
    if (ok && v->basis == MSP_BASIS_STATISTICS && v->judged > 0)
        ok = msp_verdict_add_text(
            &v->untold,
            MSP_STR("four statistics cannot tell a permutation, a shift or a changed sign from the right result, nor "
                    "small errors in few elements; record both runs with \"task\": \"tensor\" in config.json, and "
                    "every call is judged by itself"));
    return ok;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* A choice that differs between the runs and is nobody's fault. */
static bool
is_flip(const msp_evidence *e)
{
    if (!e->chose || e->nature.backward || e->bench.len == 0 || e->ratio > 1 ||
        msp_decision_of(msp_verdict_operation(msp_evidence_name(e))) == MSP_DECIDES_NOTHING)
        return false;
    return e->flip != NULL || e->diff_out > 0;
}

bool
msp_verdict_words_flips(msp_pair_verdict *v, const msp_evidence_list *list)
{
    enum { MOST = 20 };
    size_t more = 0;
    msp_buf b = {0};

    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];
        msp_str api = msp_evidence_name(e), op = msp_verdict_operation(api);

        if (!is_flip(e) || (v->flips.count >= MOST && ++more > 0))
            continue;
        msp_buf_printf(&b, "%.*s: ", short_of(api), api.p);
        if (e->flip != NULL)
            write_flip(&b, op, e->flip);
        else
            msp_buf_printf(&b, "%.*s did not choose the same in both runs; by how little only tensors tell",
                           (int)op.len, op.p);
        if (!msp_verdict_add_take(&v->flips, &b))
            return false;
    }
    if (more == 0)
        return true;
    msp_buf_printf(&b, "and %zu more choices that fell the other way", more);
    return msp_verdict_add_take(&v->flips, &b);
}
