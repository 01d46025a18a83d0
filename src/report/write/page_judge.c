/* page_judge.c - see page_judge.h. */
#include "report/write/page_judge.h"

#include <math.h>

static bool
is_wrong(const msp_page_kept *row, bool output)
{
    return row->verdict == PAGE_WRONG && ((row->marks & PAGE_MARK_OUTPUT) != 0) == output;
}

static bool
any_wrong(const msp_page_call *c, const msp_page_kept *rows, bool output)
{
    for (size_t i = 0; i < c->rows; i++)
        if (is_wrong(&rows[c->first + i], output))
            return true;
    return false;
}

static size_t
first_wrong(const msp_page_call *calls, size_t n, const msp_page_kept *rows)
{
    size_t i = 0;

    while (i < n && calls[i].verdict != PAGE_WRONG && !any_wrong(&calls[i], rows, false) &&
           !any_wrong(&calls[i], rows, true))
        i++;
    return i;
}

/* So much more than all before it, and so much at all, is no rounding: it came in from code that was not recorded. */
#define JUMP_TIMES 10.0f
#define JUMP_LEAST 0.01f

static bool
is_jump(float error, float before)
{
    return error > JUMP_LEAST && error > JUMP_TIMES * before;
}

/*
 * Where the trouble begins: at the first wrong call, or before it at something that comes in from outside. *before: the
 * largest error up to there, which has nothing to do with it.
 */
static size_t
find_beginning(const msp_page_call *calls, size_t wrong, const msp_page_kept *rows, float *before)
{
    *before = 0;
    for (size_t i = 0; i < wrong; i++) {
        if (is_jump(calls[i].error, *before) || is_jump(calls[i].input_error, *before))
            return i;
        *before = fmaxf(*before, fmaxf(calls[i].error, calls[i].input_error));
    }
    if (!any_wrong(&calls[wrong], rows, false) && !is_jump(calls[wrong].input_error, *before))
        *before = fmaxf(*before, calls[wrong].input_error);
    return wrong;
}

/* By the limits alone, of a call after the first wrong one: is it off because of that? */
static bool
inherits_error(const msp_page_call *c, const msp_page_kept *rows, float before)
{
    return (c->marks & PAGE_MARK_BACKWARD) != 0 || c->input_error > before || any_wrong(c, rows, false);
}

static void
settle_row(msp_page_kept *row, float before, bool wrong_inherited)
{
    if (row->verdict == PAGE_WRONG && wrong_inherited)
        row->verdict = PAGE_INHERITED;
    else if (row->verdict <= PAGE_FINE && row->error > before)
        row->verdict = PAGE_INHERITED;
}

static void
settle_call(msp_page_call *c, const msp_page_kept *rows)
{
    for (size_t i = 0; i < c->rows; i++) {
        const msp_page_kept *row = &rows[c->first + i];

        if (row->verdict > c->verdict)
            c->verdict = row->verdict;
    }
}

void
msp_page_settle(msp_page_call *calls, size_t ncalls, msp_page_kept *rows, bool own)
{
    size_t wrong = first_wrong(calls, ncalls, rows);
    float before = 0;

    for (size_t i = wrong < ncalls ? find_beginning(calls, wrong, rows, &before) : ncalls; i < ncalls; i++) {
        msp_page_call *c = &calls[i];
        bool wrong_inherited = !own && i > wrong && inherits_error(c, rows, before);

        for (size_t k = 0; k < c->rows; k++) {
            msp_page_kept *row = &rows[c->first + k];

            settle_row(row, before, wrong_inherited);
        }
        if ((c->marks & PAGE_MARK_NO_ROWS) == 0)
            continue;
        if (c->verdict == PAGE_WRONG ? wrong_inherited : c->verdict <= PAGE_FINE && c->error > before)
            c->verdict = PAGE_INHERITED;
    }
    for (size_t i = 0; i < ncalls; i++)
        settle_call(&calls[i], rows);
}
