/* test_page.c - the report page's file: what stands in it, what may not, and what happens when memory or rows run out.
 * How it looks and works is tested in a browser: tests/web. */
#include "unit.h"
#include <math.h>
#include <sys/stat.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "report/write/page.h"

static const msp_column columns[] = {{"NPU Name", 0},     {"Bench Name", 0},
                                     {"NPU Dtype", 0},    {"NPU Tensor Shape", 0},
                                     {"EucDist", 0},      {"NPU max", 0},
                                     {"NPU min", 0},      {"NPU mean", 0},
                                     {"NPU l2norm", 0},   {"Bench max", 0},
                                     {"Bench min", 0},    {"Bench mean", 0},
                                     {"Bench l2norm", 0}, {"Accuracy Reached or Not", 0}};
enum { NCOLUMNS = sizeof(columns) / sizeof(columns[0]) };

static msp_cell
text(const char *s)
{
    return msp_cell_text(s, strlen(s));
}

static msp_status
add_row(msp_page_part *p, const char *call, const char *name, double max, double euc, const char *verdict)
{
    msp_cell cells[NCOLUMNS] = {text(name), text(name), text("torch.float32"), text("[2, 3]")};

    cells[4] = msp_cell_float(euc);
    cells[5] = cells[9] = msp_cell_float(max);
    cells[6] = cells[10] = msp_cell_float(-1);
    cells[7] = cells[11] = msp_cell_float(0.5);
    cells[8] = cells[12] = msp_cell_float(10);
    if (!isfinite(max))
        cells[9] = msp_cell_float(1);
    cells[13] = text(verdict);
    return msp_page_part_row(p, msp_str_of(call), cells, MSP_ROW_PLAIN, NULL);
}

#define SMALL_HEAD "{\"x\": \"</script>\xe2\x80\xa8&\"}"

/* A finished part; *out is to be closed in any case. */
static msp_status
open_small(msp_page_part **out, const char *path)
{
    msp_str frame = MSP_STR("File train.py, line 3, in forward, \n y = f(x)");
    msp_status st = msp_page_part_open(out, path, columns, NCOLUMNS, 1000, NULL);
    msp_page_part *p = *out;

    if (st != MSP_OK)
        return st;
    st = add_row(p, "a.0.forward", "a.0.forward.input.0", 2, 0, "Yes");
    if (st == MSP_OK)
        st = msp_page_part_stack(p, &frame, 1, NULL);
    if (st == MSP_OK)
        st = add_row(p, "a.0.forward", "a.0.forward.output.0", 3, 5, "No");
    if (st == MSP_OK)
        st = add_row(p, "b.0.forward", "b.0.forward.input.0", 3, 1, "Yes");
    if (st == MSP_OK)
        st = msp_page_part_parent(p, MSP_STR("a.0.forward"), MSP_STR("Module.m"), NULL);
    return st == MSP_OK ? msp_page_part_finish(p, NULL) : st;
}

static msp_status
write_small(const char *path)
{
    msp_page_part *p = NULL;
    msp_status st = open_small(&p, path);

    if (st == MSP_OK)
        st = msp_page_write(path, MSP_STR(SMALL_HEAD), &p, 1, NULL);
    msp_page_part_close(p);
    return st;
}

static size_t
files_in_scratch(void)
{
    msp_dir_list list;
    size_t n;

    assert_int_equal(msp_dir_list_read(&list, scratch_dir(), NULL), MSP_OK);
    n = list.count;
    msp_dir_list_release(&list);
    return n;
}

static void
the_head_cannot_end_its_element(void **state)
{
    char *path = msp_path_join(scratch_dir(), "p.html"), *all;
    size_t size;

    (void)state;
    assert_int_equal(write_small(path), MSP_OK);
    assert_int_equal(msp_file_read(&all, &size, path, 1 << 24, NULL), MSP_OK);
    assert_non_null(strstr(all, "{\"x\": \"\\u003c/script\\u003e\\u2028\\u0026\"}"));
    assert_non_null(strstr(all, "data-block=\"rows0\""));
    assert_int_equal(files_in_scratch(), 1); /* what was spilled is gone */
    msp_free(all);
    unlink(path);
    msp_free(path);
}

static void
a_call_has_its_worst_rows_verdict_and_its_outputs_error(void **state)
{
    char *path = msp_path_join(scratch_dir(), "p.html");
    const msp_page_bin *bins[3];
    msp_page_part *p;

    (void)state;
    assert_int_equal(msp_page_part_open(&p, path, columns, NCOLUMNS, 1000, NULL), MSP_OK);
    assert_int_equal(add_row(p, "a", "a.input.0", 2, 0, "Yes"), MSP_OK);
    assert_int_equal(add_row(p, "a", "a.output.0", 2, 5, "No"), MSP_OK);
    assert_int_equal(add_row(p, "b", "b.output.0", (double)NAN, 0, "Yes"), MSP_OK);
    assert_int_equal(add_row(p, "c", "c.output.0", 1, 0.1, "Yes"), MSP_OK);
    assert_int_equal(msp_page_part_finish(p, NULL), MSP_OK);
    for (size_t i = 0; i < 3; i++) /* three calls in as many shares of the bins */
        bins[i] = &msp_page_part_rest(p)->bins[i * PAGE_BINS / 3];
    assert_true(bins[0]->error == 0.5f && bins[0]->verdict == PAGE_WRONG);
    assert_true((bins[0]->marks & PAGE_MARK_LIMIT) != 0);
    /* NaN on one side alone is wrong, whatever the table's own verdict says */
    assert_true(isinf(bins[1]->error) && bins[1]->verdict == PAGE_WRONG && (bins[1]->marks & PAGE_MARK_NONFINITE) != 0);
    /* within the limits, and yet more off than anything was before the first wrong call */
    assert_true(bins[2]->verdict == PAGE_INHERITED && fabsf(bins[2]->error - 0.01f) < 1e-6f);
    assert_string_equal(msp_page_part_rest(p)->largest_call, "b");
    msp_page_part_close(p);
    assert_int_equal(files_in_scratch(), 0);
    msp_free(path);
}

/* The verdicts of calls "a", "b", ..., of which each has so many shares of the bins. */
static void
assert_verdicts(const msp_page_part *p, const char *expected)
{
    static const char letters[] = {'-', 'f', '?', '>', 'W'};
    size_t n = strlen(expected);
    char got[16] = "";

    assert_int_equal(msp_page_part_rest(p)->calls, n);
    for (size_t i = 0; i < n; i++)
        got[i] = letters[msp_page_part_rest(p)->bins[(i * PAGE_BINS + n - 1) / n].verdict];
    assert_string_equal(got, expected);
}

/* By the limits alone: what has wrong inputs, and every gradient after the first wrong call, only follows. */
static void
by_the_limits_the_first_call_is_wrong_and_others_follow(void **state)
{
    char *path = msp_path_join(scratch_dir(), "p.html");
    msp_page_part *p;

    (void)state;
    assert_int_equal(msp_page_part_open(&p, path, columns, NCOLUMNS, 1000, NULL), MSP_OK);
    assert_int_equal(add_row(p, "a", "a.output.0", 2, 0.1, "Yes"), MSP_OK); /* noise: 0.01 */
    assert_int_equal(add_row(p, "b", "b.input.0", 2, 0.1, "Yes"), MSP_OK);
    assert_int_equal(add_row(p, "b", "b.output.0", 2, 5, "No"), MSP_OK);
    assert_int_equal(add_row(p, "c", "c.input.0", 2, 5, "No"), MSP_OK);
    assert_int_equal(add_row(p, "c", "c.output.0", 2, 5, "No"), MSP_OK);
    assert_int_equal(add_row(p, "d", "d.output.0", 2, 0.05, "Yes"), MSP_OK); /* no more than before */
    assert_int_equal(add_row(p, "e", "e.input.0", 2, 0.1, "Yes"), MSP_OK);
    assert_int_equal(add_row(p, "e", "e.output.0", 2, 5, "No"), MSP_OK);
    assert_int_equal(add_row(p, "g.backward", "g.backward.output.0", 2, 5, "No"), MSP_OK);
    assert_int_equal(msp_page_part_finish(p, NULL), MSP_OK);
    assert_verdicts(p, "fW>fW>");
    msp_page_part_close(p);
    msp_free(path);
}

/* The tool's own verdict goes before the limits, also on rows that the page does not keep. */
static void
the_tools_own_verdict_decides_where_there_is_one(void **state)
{
    static const double errors[] = {1e-5, 0.5, 0.5, 2e-5, 3};
    char *path = msp_path_join(scratch_dir(), "p.html");
    msp_page_part *p;

    (void)state;
    for (int max_rows = 1000; max_rows > 0; max_rows -= 998) {
        assert_int_equal(msp_page_part_open(&p, path, columns, NCOLUMNS, max_rows, NULL), MSP_OK);
        for (int i = 0; i < 5; i++) {
            char call[] = {(char)('a' + i), '\0'}, name[] = "?.output.0";

            name[0] = call[0];
            /* the limits see only the last; its cause is the second */
            assert_int_equal(add_row(p, call, name, 2, errors[i], i == 4 ? "No" : "Yes"), MSP_OK);
        }
        msp_page_part_own_verdict(p);
        for (size_t i = 0; i < 5; i++) {
            msp_page_result r = {.ratio = i == 1 ? 9 : 0.1, .text = MSP_STR("")};

            msp_page_part_judge(p, i, i == 1 ? PAGE_WRONG : PAGE_FINE);
            assert_int_equal(msp_page_part_result(p, i, &r, NULL), MSP_OK);
        }
        assert_int_equal(msp_page_part_shown(p, 0), 0);
        assert_int_equal(msp_page_part_shown(p, 3), max_rows > 3 ? 3 : -1);
        assert_int_equal(msp_page_part_finish(p, NULL), MSP_OK);
        assert_verdicts(p, "fW>>>");
        msp_page_part_close(p);
    }
    msp_free(path);
}

static void
what_comes_in_from_outside_begins_the_trouble(void **state)
{
    char *path = msp_path_join(scratch_dir(), "p.html");
    msp_page_part *p;

    (void)state;
    assert_int_equal(msp_page_part_open(&p, path, columns, NCOLUMNS, 1000, NULL), MSP_OK);
    assert_int_equal(add_row(p, "a", "a.output.0", 2, 1e-5, "Yes"), MSP_OK);
    assert_int_equal(add_row(p, "b", "b.input.0", 2, 0.7, "Yes"), MSP_OK); /* nobody has recorded why */
    assert_int_equal(add_row(p, "b", "b.output.0", 2, 0.6, "Yes"), MSP_OK);
    assert_int_equal(add_row(p, "c", "c.output.0", 2, 0.6, "Yes"), MSP_OK);
    msp_page_part_own_verdict(p);
    msp_page_part_judge(p, 3, PAGE_WRONG);
    assert_int_equal(msp_page_part_finish(p, NULL), MSP_OK);
    assert_verdicts(p, "f>W");
    msp_page_part_close(p);
    msp_free(path);
}

static char *
copy_of(const char *s)
{
    char *copy = msp_alloc(strlen(s) + 1, 1);

    assert_non_null(copy);
    return strcpy(copy, s);
}

/* Another process finishes a part: the page is the same as from its own. */
static void
an_adopted_part_makes_the_same_page(void **state)
{
    char *path = msp_path_join(scratch_dir(), "p.html"), *own, *adopted;
    msp_page_part *p, *q;
    msp_page_rest rest;
    size_t size[2];

    (void)state;
    assert_int_equal(write_small(path), MSP_OK);
    assert_int_equal(msp_file_read(&own, &size[0], path, 1 << 24, NULL), MSP_OK);
    assert_int_equal(open_small(&p, path), MSP_OK);
    rest = *msp_page_part_rest(p);
    rest.file = copy_of(rest.file);
    rest.largest_call = copy_of(rest.largest_call);
    msp_page_part_leave(p);
    assert_int_equal(files_in_scratch(), 2); /* the page and what was left */
    assert_int_equal(msp_page_part_adopt(&q, &rest, NULL), MSP_OK);
    assert_null(rest.file);
    assert_int_equal(msp_page_write(path, MSP_STR(SMALL_HEAD), &q, 1, NULL), MSP_OK);
    assert_int_equal(msp_file_read(&adopted, &size[1], path, 1 << 24, NULL), MSP_OK);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(own, adopted, size[0]);
    msp_page_part_close(q);
    assert_int_equal(files_in_scratch(), 1);
    msp_free(own);
    msp_free(adopted);
    unlink(path);
    msp_free(path);
}

/* construct.json is input like any other. */
static void
a_module_whose_name_is_longer_than_all_texts_may_be_is_cut(void **state)
{
    enum { LONG = (64 << 20) + 1 };
    char *path = msp_path_join(scratch_dir(), "p.html"), *name = msp_alloc(LONG, 1);
    msp_page_part *p;

    (void)state;
    assert_non_null(name);
    memset(name, 'm', LONG);
    assert_int_equal(msp_page_part_open(&p, path, columns, NCOLUMNS, 100, NULL), MSP_OK);
    assert_int_equal(add_row(p, "f.0", "f.0.output.0", 1, 0, "Yes"), MSP_OK);
    assert_int_equal(msp_page_part_parent(p, MSP_STR("f.0"), (msp_str){name, LONG}, NULL), MSP_OK);
    assert_int_equal(msp_page_part_parent(p, (msp_str){name, LONG}, MSP_STR("top"), NULL), MSP_OK);
    assert_int_equal(msp_page_part_finish(p, NULL), MSP_OK);
    msp_page_part_close(p);
    msp_free(name);
    msp_free(path);
}

static void
rows_beyond_the_limit_are_kept_where_they_are_wrong(void **state)
{
    char *path = msp_path_join(scratch_dir(), "p.html");
    msp_page_part *p;

    (void)state;
    assert_int_equal(msp_page_part_open(&p, path, columns, NCOLUMNS, 100, NULL), MSP_OK);
    for (int i = 0; i < 20000; i++) {
        char call[32], name[48];

        snprintf(call, sizeof(call), "f.%d", i);
        snprintf(name, sizeof(name), "f.%d.output.0", i);
        assert_int_equal(add_row(p, call, name, i, 0, i % 1000 == 999 ? "No" : "Yes"), MSP_OK);
    }
    assert_int_equal(msp_page_part_rows(p), 120);
    assert_int_equal(msp_page_part_calls(p), 20000);
    assert_int_equal(msp_page_part_finish(p, NULL), MSP_OK);
    msp_page_part_close(p);
    msp_free(path);
}

static void
without_memory_it_fails_and_leaves_nothing(void **state)
{
    char *path = msp_path_join(scratch_dir(), "p.html");
    msp_status st = MSP_E_NOMEM;
    int64_t live = msp_alloc_live();

    (void)state;
    for (int64_t n = 0; st != MSP_OK; n++) {
        assert_true(n < 10000);
        msp_alloc_fail_after(n);
        st = write_small(path);
        msp_alloc_fail_after(-1);
        assert_int_equal(msp_alloc_live(), live);
        if (st != MSP_OK) {
            assert_int_equal(st, MSP_E_NOMEM);
            assert_int_equal(files_in_scratch(), 0);
        }
    }
    unlink(path);
    msp_free(path);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_head_cannot_end_its_element),
                                       cmocka_unit_test(a_call_has_its_worst_rows_verdict_and_its_outputs_error),
                                       cmocka_unit_test(by_the_limits_the_first_call_is_wrong_and_others_follow),
                                       cmocka_unit_test(the_tools_own_verdict_decides_where_there_is_one),
                                       cmocka_unit_test(what_comes_in_from_outside_begins_the_trouble),
                                       cmocka_unit_test(an_adopted_part_makes_the_same_page),
                                       cmocka_unit_test(a_module_whose_name_is_longer_than_all_texts_may_be_is_cut),
                                       cmocka_unit_test(rows_beyond_the_limit_are_kept_where_they_are_wrong),
                                       cmocka_unit_test(without_memory_it_fails_and_leaves_nothing)};

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
