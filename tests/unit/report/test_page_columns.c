/* test_page_columns.c - promises of report/write/page_columns.h: what a row of any result table tells the page. */
#include "unit.h"
#include <math.h>
#include "report/write/page_columns.h"

enum { MOST = 12 };

/* A row of a table made of titles and the cells below them. */
typedef struct table {
    msp_page_roles roles;
    msp_cell cells[MOST];
    size_t n;
} table;

static table
empty_table(void)
{
    table t = {.n = 0};

    for (int i = 0; i < PAGE_NROLES; i++)
        t.roles.column[i] = -1;
    return t;
}

static void
add_cell(table *t, const char *title, msp_cell c)
{
    t->roles.column[msp_page_role_of(title)] = (int)t->n;
    t->cells[t->n++] = c;
}

static void
add_number(table *t, const char *title, double v)
{
    add_cell(t, title, msp_cell_float(v));
}

static void
add_text(table *t, const char *title, const char *text)
{
    add_cell(t, title, msp_cell_text(text, strlen(text)));
}

static float
error_of(const table *t)
{
    return msp_page_row_error(&t->roles, t->cells, msp_page_row_nonfinite(&t->roles, t->cells));
}

static msp_page_verdict
verdict_of(const table *t)
{
    return msp_page_row_verdict(&t->roles, t->cells, msp_page_row_nonfinite(&t->roles, t->cells));
}

static void
the_distance_counts_by_the_benchs_norm_where_it_has_one(void **state)
{
    const double norms[] = {10, 0, -1, INFINITY, NAN};
    const float expected[] = {0.5f, 5, 5, 5, 5};
    table t;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        t = empty_table();
        add_number(&t, "EucDist", 5);
        add_number(&t, "Bench l2norm", norms[i]);
        assert_true(error_of(&t) == expected[i]);
    }
    t = empty_table();
    add_number(&t, "EucDist", 5);
    assert_true(error_of(&t) == 5);
}

static void
without_a_distance_the_largest_error_counts_by_the_benchs_maximum(void **state)
{
    table t = empty_table();

    (void)state;
    add_text(&t, "EucDist", "unsupported");
    add_number(&t, "MaxAbsErr", 1);
    assert_true(error_of(&t) == 1);
    add_number(&t, "Bench max", -4);
    assert_true(error_of(&t) == 0.25f);
    t.cells[t.n - 1] = msp_cell_float(0);
    assert_true(error_of(&t) == 1);
}

static void
statistics_are_off_by_the_largest_of_their_differences(void **state)
{
    table t = empty_table();

    (void)state;
    assert_true(error_of(&t) == -1);
    add_number(&t, "Max diff", 1);
    assert_true(error_of(&t) == -1); /* of what? */
    add_number(&t, "Bench max", 2);
    add_number(&t, "Bench min", -8); /* the largest of the bench's extremes and mean is the scale of all three */
    assert_true(error_of(&t) == 0.125f);
    add_number(&t, "Mean diff", -4);
    add_number(&t, "Bench mean", 0);
    assert_true(error_of(&t) == 0.5f);
    add_number(&t, "L2norm diff", 3); /* a norm has its own */
    add_number(&t, "Bench l2norm", 4);
    assert_true(error_of(&t) == 0.75f);
    t.cells[t.roles.column[PAGE_ROLE_DIFF + 3]] = msp_cell_float(NAN);
    assert_true(error_of(&t) == 0.5f);
}

static void
checksums_are_equal_or_not(void **state)
{
    const char *bench[] = {"0badcafe", "0badcaff", "N/A", ""};
    const float expected[] = {0, 1, -1, -1};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        table t = empty_table();

        add_text(&t, "NPU MD5", "0badcafe");
        add_text(&t, "BENCH MD5", bench[i]);
        assert_true(error_of(&t) == expected[i]);
    }
}

static void
nan_on_one_side_is_wrong_however_the_row_was_judged(void **state)
{
    const char *words[] = {"nan", "NaN\t", "inf", "-inf"};
    table t;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        t = empty_table();
        add_text(&t, "NPU max", words[i]);
        add_number(&t, "Bench max", 1);
        add_text(&t, "Accuracy Reached or Not", "Yes");
        assert_true(isinf(error_of(&t)));
        assert_int_equal(verdict_of(&t), PAGE_WRONG);
        t.cells[1] = msp_cell_float(NAN); /* on both */
        assert_true(error_of(&t) == -1);
        assert_int_equal(verdict_of(&t), PAGE_FINE);
        t.cells[1] = msp_cell_float(1);
        add_text(&t, "Bench Name", "N/A"); /* there is no other side */
        assert_int_equal(verdict_of(&t), PAGE_UNMATCHED);
    }
    t = empty_table();
    add_number(&t, "NPU min", -INFINITY);
    add_number(&t, "Bench min", -1);
    assert_true(isinf(error_of(&t)));
}

static void
every_word_of_the_tools_is_a_verdict(void **state)
{
    static const struct {
        const char *word;
        msp_page_verdict verdict;
    } words[] = {{"Yes", PAGE_FINE},        {"No", PAGE_WRONG},       {"Warning", PAGE_WRONG},
                 {"Different", PAGE_WRONG}, {"error", PAGE_WRONG},    {"Unmatched", PAGE_UNMATCHED},
                 {"None", PAGE_NOT_JUDGED}, {"N/A", PAGE_NOT_JUDGED}, {"", PAGE_FINE}};
    table t;

    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        t = empty_table();
        add_text(&t, "Result", words[i].word);
        assert_int_equal(verdict_of(&t), words[i].verdict);
    }
    t = empty_table();
    assert_int_equal(verdict_of(&t), PAGE_NOT_JUDGED);
}

static void
a_tensor_is_known_by_its_type_shape_and_statistics(void **state)
{
    uint64_t seen[5];
    table t;

    (void)state;
    for (int i = 0; i < 5; i++) {
        t = empty_table();
        add_text(&t, "NPU Dtype", i == 1 ? "torch.float16" : "torch.float32");
        add_text(&t, "NPU Tensor Shape", i == 2 ? "[3, 2]" : "[2, 3]");
        add_number(&t, "NPU max", 2);
        add_number(&t, "NPU min", i == 3 ? -1.5 : -1);
        add_number(&t, "NPU mean", 0.5);
        add_number(&t, "NPU l2norm", i == 4 ? 3.5 : 3);
        seen[i] = msp_page_row_fingerprint(&t.roles, t.cells);
        assert_true(seen[i] != 0 && seen[i] == msp_page_row_fingerprint(&t.roles, t.cells));
        for (int k = 0; k < i; k++)
            assert_true(seen[k] != seen[i]);
    }
    t.cells[t.roles.column[PAGE_ROLE_STAT]] = msp_cell_float(-1); /* one value throughout */
    assert_true(msp_page_row_fingerprint(&t.roles, t.cells) == 0);
    t.cells[t.roles.column[PAGE_ROLE_STAT]] = msp_cell_text("N/A", 3);
    assert_true(msp_page_row_fingerprint(&t.roles, t.cells) == 0);
    add_text(&t, "NPU MD5", "0badcafe");
    assert_true(msp_page_row_fingerprint(&t.roles, t.cells) != 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_distance_counts_by_the_benchs_norm_where_it_has_one),
        TEST(without_a_distance_the_largest_error_counts_by_the_benchs_maximum),
        TEST(statistics_are_off_by_the_largest_of_their_differences),
        TEST(checksums_are_equal_or_not),
        TEST(nan_on_one_side_is_wrong_however_the_row_was_judged),
        TEST(every_word_of_the_tools_is_a_verdict),
        TEST(a_tensor_is_known_by_its_type_shape_and_statistics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
