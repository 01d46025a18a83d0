/* report_verdict.c - see report_verdict.h. */
#include "compare/page/report_verdict.h"

#include <math.h>
#include "compare/run/run.h"
#include "compare/verdict/verdict.h"
#include "core/alloc.h"
#include "core/vec.h"

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

static msp_status
take_header(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    static const char *const titles[] = {"Item",           "Call",        "Bench Call",
                                         "Result",         "Text",        "Difference In",
                                         "Difference Out", "Local Error", "Bench Local Error",
                                         "Inherited",      "Expected",    "Over Limit",
                                         "Shape of Error"};
    msp_report_verdict *v = payload;
    int *columns[] = {&v->at.item,     &v->at.call,  &v->at.bench, &v->at.result,      &v->at.text,
                      &v->at.in,       &v->at.out,   &v->at.local, &v->at.bench_local, &v->at.inherited,
                      &v->at.expected, &v->at.ratio, &v->at.shape};

    (void)err;
    for (size_t k = 0; k < sizeof(titles) / sizeof(titles[0]); k++) {
        *columns[k] = -1;
        for (size_t i = 0; i < count; i++)
            if (cells[i].kind == MSP_CELL_TEXT &&
                msp_str_eq((msp_str){cells[i].as.text.p, cells[i].as.text.len}, msp_str_of(titles[k])))
                *columns[k] = (int)i;
    }
    return MSP_OK;
}

/* One row of the sheet. */
typedef struct line {
    const msp_cell *cells;
    size_t count;
} line;

static msp_str
text_at(const line *l, int column)
{
    const msp_cell *c = column < 0 || (size_t)column >= l->count ? NULL : &l->cells[column];

    return c == NULL || c->kind != MSP_CELL_TEXT ? (msp_str){"", 0} : (msp_str){c->as.text.p, c->as.text.len};
}

/* NaN where there is none. JSON has no infinity, and tables write it as a word. */
static double
number_at(const line *l, int column)
{
    const msp_cell *c = column < 0 || (size_t)column >= l->count ? NULL : &l->cells[column];

    if (c == NULL)
        return NAN;
    if (c->kind == MSP_CELL_FLOAT)
        return c->as.f;
    if (c->kind == MSP_CELL_INT)
        return (double)c->as.i;
    return msp_str_eq(text_at(l, column), MSP_STR("inf")) ? INFINITY : NAN;
}

/* NULL for nothing. */
static bool
copy_to(char **out, msp_str s)
{
    *out = s.len > 0 ? msp_str_copy(s) : NULL;
    return s.len == 0 || *out != NULL;
}

/* The verdict's own text of a reason; NULL: no memory. */
static const char *
reason_of(msp_report_verdict *v, msp_str text)
{
    msp_pair_verdict *to = &v->out->verdict;
    msp_map_entry *e = msp_map_get(&v->reasons, text);
    char *copy;

    if (e != NULL) {
        to->unjudged[e->value].results++;
        return to->unjudged[e->value].reason;
    }
    if (!msp_vec_grow((void **)&to->unjudged, &v->cap_unjudged, to->nunjudged + 1, sizeof(*to->unjudged)) ||
        (copy = msp_str_copy(text)) == NULL)
        return NULL;
    to->unjudged[to->nunjudged++] = (msp_verdict_unjudged){copy, 1};
    e = msp_map_put(&v->reasons, (msp_str){copy, text.len}, (int64_t)to->nunjudged - 1, NULL);
    return e == NULL ? NULL : copy;
}

/* Its number, after it has been added where it is new; SIZE_MAX: no memory. */
static size_t
result_of(msp_report_verdict *v, const line *l)
{
    msp_pair_verdict *to = &v->out->verdict;
    msp_str call = text_at(l, v->at.call), at = text_at(l, v->at.result);
    msp_verdict_result *r;
    msp_buf name = {0};
    msp_map_entry *e;
    char *key;

    msp_buf_printf(&name, "%.*s.%.*s", (int)call.len, call.p, (int)at.len, at.p);
    key = name.failed ? NULL : msp_arena_text(&v->arena, name.p, name.len);
    e = key == NULL ? NULL : msp_map_get(&v->rows, (msp_str){key, name.len});
    if (e == NULL && key != NULL && msp_vec_grow((void **)&to->results, &v->cap, to->nresults + 1, sizeof(*r))) {
        r = &to->results[to->nresults++];
        *r = (msp_verdict_result){.row = -1, .ratio = NAN, .local = NAN, .local_bench = NAN, .inherited = NAN};
        r->api = msp_str_copy(call);
        r->at = msp_str_copy(at);
        if (r->api != NULL && r->at != NULL)
            e = msp_map_put(&v->rows, (msp_str){key, name.len}, (int64_t)to->nresults - 1, NULL);
    }
    msp_buf_release(&name);
    return e == NULL ? SIZE_MAX : (size_t)e->value;
}

static bool
take_result(msp_report_verdict *v, const line *l)
{
    size_t number = result_of(v, l);
    msp_str text = text_at(l, v->at.text);
    msp_verdict_result *r;

    if (number == SIZE_MAX)
        return false;
    r = &v->out->verdict.results[number];
    r->diff_in = number_at(l, v->at.in);
    r->diff_out = number_at(l, v->at.out);
    r->local = number_at(l, v->at.local);
    r->local_bench = number_at(l, v->at.bench_local);
    r->inherited = number_at(l, v->at.inherited);
    r->expected = number_at(l, v->at.expected);
    r->ratio = number_at(l, v->at.ratio);
    r->nonfinite = msp_str_starts(text, MSP_STR("NaN or inf"));
    if (isnan(r->ratio) && text.len > 0 && (r->not_judged = reason_of(v, text)) == NULL)
        return false;
    return (r->bench_api != NULL || copy_to(&r->bench_api, text_at(l, v->at.bench))) &&
           (r->shape_text != NULL || copy_to(&r->shape_text, text_at(l, v->at.shape)));
}

static bool
take_suspect(msp_report_verdict *v, const line *l)
{
    msp_pair_verdict *to = &v->out->verdict;
    msp_verdict_suspect *s = &to->suspects[to->nsuspects];

    if (to->nsuspects == MSP_VERDICT_SUSPECTS)
        return true;
    *s = (msp_verdict_suspect){.result = result_of(v, l)};
    to->nsuspects++;
    s->api = msp_str_copy(text_at(l, v->at.call));
    s->at = msp_str_copy(text_at(l, v->at.result));
    s->reason = msp_str_copy(text_at(l, v->at.text));
    return s->result != SIZE_MAX && s->api != NULL && s->at != NULL && s->reason != NULL;
}

static bool
take_sentence(msp_report_verdict *v, msp_str text)
{
    msp_compare_answer *a = &v->out->answer;

    if (a->sentence != NULL)
        return true;
    v->out->verdict.given = true;
    a->level = msp_str_starts(text, MSP_STR("Wrong"))       ? MSP_ANSWER_WRONG
               : msp_str_starts(text, MSP_STR("Nothing "))  ? MSP_ANSWER_WITHIN
               : msp_str_starts(text, MSP_STR("Identical")) ? MSP_ANSWER_IDENTICAL
                                                            : MSP_ANSWER_NOT_JUDGED;
    a->sentence = msp_result_text(text);
    return a->sentence != NULL;
}

static msp_status
take_line(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    msp_report_verdict *v = payload;
    line l = {cells, count};
    msp_str item = text_at(&l, v->at.item);
    bool ok = true;

    if (msp_str_eq(item, MSP_STR("verdict")))
        ok = take_sentence(v, text_at(&l, v->at.text));
    else if (msp_str_eq(item, MSP_STR("note")))
        ok = msp_result_add(&v->out->answer.notes, &v->out->answer.nnotes, text_at(&l, v->at.text));
    else if (msp_str_starts(item, MSP_STR("suspect")))
        ok = take_suspect(v, &l);
    else if (msp_str_eq(item, MSP_STR("result")))
        ok = take_result(v, &l);
    return ok ? MSP_OK : no_memory(err);
}

msp_table_sink
msp_report_verdict_sink(msp_report_verdict *v)
{
    return (msp_table_sink){take_header, take_line, v};
}

bool
msp_report_verdict_row(msp_report_verdict *v, msp_str name, int64_t row)
{
    const msp_map_entry *e = msp_map_get(&v->rows, name);
    const msp_pair_verdict *of = &v->out->verdict;

    if (e == NULL)
        return false;
    of->results[e->value].row = row;
    return of->nsuspects > 0 && of->suspects[0].result == (size_t)e->value;
}

void
msp_report_verdict_end(msp_report_verdict *v)
{
    msp_pair_verdict *of = &v->out->verdict;

    for (size_t i = 0; i < of->nresults; i++)
        if (of->results[i].row < 0) {
            msp_free(of->results[i].bench_api); /* like one without a partner */
            of->results[i].bench_api = NULL;
        }
}

void
msp_report_verdict_release(msp_report_verdict *v)
{
    msp_map_release(&v->rows);
    msp_map_release(&v->reasons);
    msp_arena_release(&v->arena);
    *v = (msp_report_verdict){0};
}
