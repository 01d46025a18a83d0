/* test_merge.c - promises of msprobe/merge.h. Cell values against the original tool: tests/python/test_merge.py. */
#include "unit.h"
#include "core/alloc.h"
#include "core/number.h"
#include "core/path.h"
#include "core/pool.h"
#include "msprobe/log.h"
#include "msprobe/merge.h"
#include "msprobe/table.h"
#include "report/read/table_read.h"

enum { COLUMNS = 8 };

static char input[300], output[300], config[300];
static msp_buf warnings;

static void
remember_warning(msp_log_level level, const char *text, void *payload)
{
    (void)payload;
    if (level == MSP_LOG_WARNING) {
        msp_buf_text(&warnings, text);
        msp_buf_char(&warnings, '\n');
    }
}

/* An empty input and output directory for every test, and a configuration. */
static int
fresh(void **state)
{
    char command[900];

    (void)state;
    snprintf(input, sizeof(input), "%s/in", scratch_dir());
    snprintf(output, sizeof(output), "%s/out", scratch_dir());
    snprintf(config, sizeof(config), "%s/config.yaml", scratch_dir());
    snprintf(command, sizeof(command), "rm -rf '%s' '%s'", input, output);
    msp_buf_clear(&warnings);
    msp_log_set_sink(MSP_LOG_INFO, remember_warning, NULL);
    return system(command) != 0 || msp_path_make_dirs(input, NULL) != MSP_OK;
}

static const char *const statistics[COLUMNS] = {"NPU Name", "Max diff",   "MaxRelativeErr",
                                                "NPU max",  "Bench max",  "Requires_grad Consistent",
                                                "Result",   "Err_message"};
static const char *const real[COLUMNS] = {"NPU Name",    "Cosine",    "Five Thousandth Err Ratio",
                                          "NPU max",     "Bench max", "Requires_grad Consistent",
                                          "Err_message", "Data_Name"};
static const char *const md5[COLUMNS] = {"NPU Name", "Bench Name", "NPU MD5", "BENCH MD5", "Requires_grad Consistent",
                                         "Result",   "x",          "y"};

/* A cell of a test's row: a number when it reads like one. */
static msp_cell
cell_of(const char *text)
{
    double v;

    if (text[0] == '\0')
        return (msp_cell){0};
    if ((text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) && msp_f64_parse(msp_str_of(text), &v))
        return msp_cell_float(v);
    return msp_cell_text(text, strlen(text));
}

/* A result of these rows, each "name|metric|metric|npu max|bench max". */
static void
write_result(const char *name, const char *const *titles, const char *const *rows)
{
    char *path = msp_path_join(input, name);
    msp_column columns[COLUMNS];
    msp_table *t;

    for (int i = 0; i < COLUMNS; i++)
        columns[i] = (msp_column){titles[i], 0};
    assert_int_equal(msp_table_open(&t, path, strstr(name, ".csv") != NULL ? MSP_TABLE_CSV : MSP_TABLE_XLSX, columns,
                                    COLUMNS, NULL, NULL),
                     MSP_OK);
    for (; *rows != NULL; rows++) {
        msp_cell cells[COLUMNS] = {{0}};
        char text[256], *p = text;

        snprintf(text, sizeof(text), "%s", *rows);
        for (int i = 0; i < 5 && p != NULL; i++)
            cells[i] = cell_of(strsep(&p, "|"));
        cells[5] = msp_cell_bool(true);
        assert_int_equal(msp_table_row(t, cells, MSP_ROW_PLAIN, NULL), MSP_OK);
    }
    assert_int_equal(msp_table_finish(t, NULL), MSP_OK);
    msp_table_close(t);
    msp_free(path);
}

#define ROWS(...) ((const char *const[]){__VA_ARGS__, NULL})

static msp_status
add_cells(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    msp_buf *b = payload;
    char number[32];

    (void)err;
    for (size_t i = 0; i < count; i++) {
        msp_buf_text(b, i > 0 ? "|" : "");
        if (cells[i].kind == MSP_CELL_TEXT)
            msp_buf_add(b, cells[i].as.text.p, cells[i].as.text.len);
        else if (cells[i].kind == MSP_CELL_INT)
            msp_buf_printf(b, "%lld", (long long)cells[i].as.i);
        else if (cells[i].kind == MSP_CELL_FLOAT)
            msp_buf_add(b, number, msp_f64_repr(number, cells[i].as.f));
        else if (cells[i].kind == MSP_CELL_BOOL)
            msp_buf_text(b, cells[i].as.b ? "True" : "False");
    }
    msp_buf_char(b, '\n');
    return MSP_OK;
}

static msp_status
run(msp_merge_result *res, const char *yaml, msp_error *err)
{
    const msp_merge_options opt = {.input_dir = input,
                                   .output_dir = output,
                                   .config_path = config,
                                   .timestamp = "20260203040506"};

    write_file("config.yaml", yaml, strlen(yaml));
    return msp_merge_run(res, &opt, err);
}

/* Merge and compare the first sheet. */
static void
assert_merged(const char *yaml, const char *expected)
{
    msp_merge_result res;
    msp_buf b = {0};
    const msp_table_sink sink = {add_cells, add_cells, &b};
    msp_error err;

    if (run(&res, yaml, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(msp_table_read(res.path, &sink, &err), MSP_OK);
    assert_string_equal(b.p, expected);
    msp_merge_result_release(&res);
    msp_buf_release(&b);
}

static void
assert_refused(const char *yaml, msp_status status, const char *message)
{
    msp_merge_result res;
    msp_error err = {0};

    assert_int_equal(run(&res, yaml, &err), status);
    assert_null(res.path);
    if (strstr(err.message, message) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", message, err.message);
    msp_merge_result_release(&res);
}

static void
assert_warned(const char *text)
{
    if (warnings.p == NULL || strstr(warnings.p, text) == NULL)
        fail_msg("\"%s\" is not in\n%s", text, warnings.p == NULL ? "" : warnings.p);
}

static void
ranks_stand_side_by_side_in_the_order_of_their_numbers(void **state)
{
    (void)state;
    write_result("compare_result_rank10_20260101000000.xlsx", statistics, ROWS("A.b.0.f.x|3|3%|1|1"));
    write_result("compare_result_rank2-rank4_20260101000000.xlsx", statistics, ROWS("A.b.0.f.x|2|2%|1|1"));
    write_result("compare_result_rank0_20260101000000.csv", statistics, ROWS("A.b.0.f.x|1|1%|1|1"));
    assert_merged("api: [A]", "NPU Name|rank0|rank2|rank10\nA.b.0.f.x|1|2|3\n");
    assert_merged("api: [A]\ncompare_index: [MaxRelativeErr]", "NPU Name|rank0|rank2|rank10\nA.b.0.f.x|1%|2%|3%\n");
    assert_merged("api: [A]\ncompare_index: [Requires_grad Consistent, Max diff]",
                  "NPU Name|rank0|rank2|rank10\nA.b.0.f.x|True|True|True\n");
}

static void
rows_follow_the_configuration_and_then_the_first_rank(void **state)
{
    (void)state;
    write_result("compare_result_rank0_20260101000000.xlsx", statistics,
                 ROWS("A.x.0|1|1%|1|1", "B.x.0|2|1%|1|1", "A.y.0|3|1%|1|1", "A.x.0|9|1%|1|1"));
    write_result("compare_result_rank1_20260101000000.xlsx", statistics,
                 ROWS("A.z.0|4|1%|1|1", "B.x.0|5|1%|1|1", "Ax.0|6|1%|1|1"));
    /* B first, as asked; a repeated name counts once, with its first row; A.z is new in rank 1; cells are left empty */
    assert_merged("api: [B, A, A.x]", "NPU Name|rank0|rank1\nB.x.0|2|5\nA.x.0|1\nA.y.0|3\nA.z.0||4\n");
    assert_warned("A.x not found in rank1 compare result.");
}

static void
a_name_is_found_as_text_with_a_dot_behind_it(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char name[64];

        snprintf(name, sizeof(name), "compare_result_rank%d_20260101000000.xlsx", i);
        write_result(name, statistics,
                     ROWS("Functional.linear.0.forward|1|1%|1|1", "Functional.linear_x.0.forward|2|1%|1|1",
                          "Module.a(b)[0].c|3|1%|1|1", "MyFunctional.linear.0|4|1%|1|1"));
    }
    assert_merged("api: [Functional.linear]",
                  "NPU Name|rank0|rank1\nFunctional.linear.0.forward|1|1\nMyFunctional.linear.0|4|4\n");
    assert_merged("api: ['a(b)[0]']", "NPU Name|rank0|rank1\nModule.a(b)[0].c|3|3\n");
    assert_refused("api: ['.*']", MSP_E_NOT_FOUND, "Nothing to merge: no compare result has a row");
}

static void
cells_without_a_value_show_both_maxima(void **state)
{
    (void)state;
    write_result("compare_result_rank0_20260101000000.xlsx", statistics,
                 ROWS("A.0.input.group|N/A|N/A|[0, 1]|[0, 1]", "A.0.input.1|unsupported|1%|0.5|2",
                      "A.0.input.2|Nan|1%|inf|", "A.0.input.3|nan|1%|N/A|None", "A.0.input.4||1%|1|1"));
    write_result("compare_result_rank1_20260101000000.csv", statistics,
                 ROWS("A.0.input.group|N/A|N/A|tp-0-1|tp-2-3", "A.0.input.1|N/A|1%|1|1e+30", "A.0.input.2|n/a|1%|1|1"));
    assert_merged("api: [A]\ncompare_index: [Max diff]",
                  "NPU Name|rank0|rank1\n"
                  "A.0.input.group|NPU:[0, 1]  Bench:[0, 1]|NPU:tp-0-1  Bench:tp-2-3\n"
                  "A.0.input.1|NPU:0.5  Bench:2|NPU:1  Bench:1e+30\n"
                  "A.0.input.2|NPU:inf  Bench:N/A|n/a\n"
                  "A.0.input.3|NPU:N/A  Bench:None\n"
                  "A.0.input.4\n");
}

static void
both_spellings_of_a_title_are_the_same(void **state)
{
    static const char *const other[COLUMNS] = {"NPU Name",    "Cosine",    "Five Thousandths Err Ratio",
                                               "NPU max",     "Bench max", "Requires_grad Consistent",
                                               "Err_message", "Data_name"};

    (void)state;
    write_result("compare_result_rank0_20260101000000.xlsx", real, ROWS("A.0|0.1|0.2|1|1"));
    write_result("compare_result_rank1_20260101000000.xlsx", other, ROWS("A.0|0.3|0.4|1|1"));
    assert_merged("api: [A]\ncompare_index: [Five Thousandth Err Ratio]", "NPU Name|rank0|rank1\nA.0|0.2|0.4\n");
    assert_merged("api: [A]\ncompare_index: [Five Thousandths Err Ratio, Five Thousandth Err Ratio]",
                  "NPU Name|rank0|rank1\nA.0|0.2|0.4\n");
}

static void
ranks_that_cannot_be_used_are_named_and_the_others_merged(void **state)
{
    static const char *const foreign[COLUMNS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    msp_merge_result res;
    msp_error err;
    char *path = msp_path_join(input, "compare_result_rank5_20260101000000.xlsx");
    FILE *f = fopen(path, "w");

    (void)state;
    fputs("PK no workbook", f);
    fclose(f);
    write_result("compare_result_rank0_20260101000000.xlsx", md5, ROWS("A.0|x|1|2|3"));
    write_result("compare_result_rank1_20260101000000.xlsx", statistics, ROWS("A.0|1|1%|1|1"));
    write_result("compare_result_rank2_20260101000000.xlsx", foreign, ROWS("A.0|1|1%|1|1"));
    write_result("compare_result_rank3_20260101000000.xlsx", statistics, (const char *const[]){NULL});
    write_result("compare_result_rank4_20260101000000.xlsx", real, ROWS("A.0|1|1|1|1"));
    write_result("compare_result_rank6_20260101000000.xlsx", statistics, ROWS("A.0|2|1%|1|1"));
    assert_int_equal(run(&res, "api: [A]", &err), MSP_OK);
    assert_int_equal(res.ranks, 2);
    assert_int_equal(res.left_out, 4);
    assert_int_equal(res.failed, 1);
    assert_int_equal(res.metrics, 3);
    assert_int_equal(res.rows, 1);
    assert_warned("(md5) and no metrics in rank0");
    assert_warned("A valid dump task can not be identified from rank2");
    assert_warned("There is no data in rank3");
    assert_warned("Compare indexes in rank4");
    assert_warned("The invalid compare indexes: {'Max diff', 'MaxRelativeErr'}");
    assert_warned(path);
    msp_merge_result_release(&res);
    msp_free(path);
}

static void
of_several_results_of_a_rank_the_newest_counts(void **state)
{
    (void)state;
    write_result("compare_result_rank0_20260101000000.xlsx", statistics, ROWS("A.0|1|1%|1|1"));
    write_result("compare_result_rank0_20260101000001.xlsx", statistics, ROWS("A.0|2|1%|1|1"));
    write_result("compare_result_rank0_20251231235959.xlsx", statistics, ROWS("A.0|3|1%|1|1"));
    write_result("compare_result_rank1_20260101000000.xlsx", statistics, ROWS("A.0|4|1%|1|1"));
    write_result("compare_result_rank1_20260101000000.csv", statistics, ROWS("A.0|5|1%|1|1"));
    write_result("compare_result_rank2_20260101000000_9.xlsx", statistics, ROWS("A.0|6|1%|1|1"));
    write_result("compare_result_rank2_20260101000000_10.csv", statistics, ROWS("A.0|7|1%|1|1"));
    assert_merged("api: [A]", "NPU Name|rank0|rank1|rank2\nA.0|2|4|7\n");
    assert_warned("rank0 has more than one compare result");
    assert_null(strstr(warnings.p, "rank1 has more")); /* two formats of one result */
}

static void
other_files_are_left_out_or_refused(void **state)
{
    (void)state;
    write_result("compare_result_rank0_20260101000000.xlsx", statistics, ROWS("A.0|1|1%|1|1"));
    assert_refused("api: [A]", MSP_E_NOT_FOUND, "compare results of one rank, and merging needs two");
    write_result("compare_result_rank1_20260101000000.xlsx", statistics, ROWS("A.0|2|1%|1|1"));
    write_result("compare_result_rank_20260101000000.xlsx", statistics, ROWS("A.0|3|1%|1|1"));
    write_result("compare_result_20260101000000.xlsx", statistics, ROWS("A.0|3|1%|1|1"));
    write_result("debug_compare_result_rank0_20260101000000.xlsx", statistics, ROWS("A.0|3|1%|1|1"));
    write_result("multi_ranks_compare_merge_20260101000000.xlsx", statistics, ROWS("A.0|3|1%|1|1"));
    write_result("~$compare_result_rank1_20260101000000.xlsx", statistics, ROWS("A.0|3|1%|1|1"));
    write_result("anything.csv", statistics, ROWS("A.0|3|1%|1|1"));
    assert_merged("api: [A]", "NPU Name|rank0|rank1\nA.0|1|2\n");
    assert_warned("compare_result_rank_20260101000000.xlsx is the result of a single rank");
    assert_warned("debug_compare_result_rank0_20260101000000.xlsx is not the compare result of a rank");
    assert_warned("multi_ranks_compare_merge_20260101000000.xlsx is not the compare result of a rank");
    assert_null(strstr(warnings.p, "anything"));
    fresh(NULL);
    write_result("compare_result_rank0_2026010100000.xlsx", statistics, ROWS("A.0|1|1%|1|1"));
    assert_refused("api: [A]", MSP_E_INVALID, "Wrong compare result name");
}

static void
wrong_places_are_named(void **state)
{
    msp_merge_options opt = {.input_dir = input, .output_dir = output, .config_path = "/no/such/config.yaml"};
    msp_merge_result res;
    msp_error err;

    (void)state;
    assert_int_equal(msp_merge_run(&res, &opt, &err), MSP_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "/no/such/config.yaml"));
    opt.config_path = write_file("config.yaml", "api: [A]\nother: 1\n", 18);
    opt.input_dir = "/no/such/dir";
    assert_int_equal(msp_merge_run(&res, &opt, &err), MSP_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "/no/such/dir"));
    assert_warned("the key other is not known here");
    opt.config_path = write_file("config.yaml", "api: [A\n", 8);
    assert_int_equal(msp_merge_run(&res, &opt, &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "config.yaml: "));
    opt.timestamp = "today";
    assert_int_equal(msp_merge_run(&res, &opt, &err), MSP_E_INVALID);
}

static void
an_older_result_is_not_overwritten(void **state)
{
    msp_merge_result a, b;
    msp_error err;

    (void)state;
    write_result("compare_result_rank0_20260101000000.xlsx", statistics, ROWS("A.0|1|1%|1|1"));
    write_result("compare_result_rank1_20260101000000.xlsx", statistics, ROWS("A.0|2|1%|1|1"));
    assert_int_equal(run(&a, "api: [A]", &err), MSP_OK);
    assert_int_equal(run(&b, "api: [A]", &err), MSP_OK);
    assert_non_null(strstr(a.path, "/multi_ranks_compare_merge_20260203040506.xlsx"));
    assert_non_null(strstr(b.path, "/multi_ranks_compare_merge_20260203040507.xlsx"));
    msp_merge_result_release(&a);
    msp_merge_result_release(&b);
    msp_merge_result_release(&b);
}

static void
whichever_allocation_fails_nothing_is_left(void **state)
{
    const msp_merge_options opt = {.input_dir = input, .output_dir = output, .config_path = config, .threads = 1};
    msp_status st = MSP_E_NOMEM;
    msp_merge_result res;
    msp_dir_list list;

    (void)state;
    write_file("config.yaml", "api: [A, B]\ncompare_index: [Max diff]\n", 38);
    write_result("compare_result_rank0_20260101000000.xlsx", statistics, ROWS("A.0|1|1%|1|1", "B.0|N/A|1%|1|1"));
    write_result("compare_result_rank1_20260101000000.csv", statistics, ROWS("A.0|2|1%|1|1"));
    msp_log_set_sink(MSP_LOG_NONE, NULL, NULL);
    for (int64_t n = 0; st != MSP_OK; n++) {
        int64_t live = msp_alloc_live();

        assert_true(n < 10000);
        msp_alloc_fail_after(n);
        st = msp_merge_run(&res, &opt, NULL);
        msp_alloc_fail_after(-1);
        msp_merge_result_release(&res);
        assert_int_equal(msp_alloc_live(), live);
        if (st != MSP_OK)
            assert_int_equal(st, MSP_E_NOMEM);
        if (st != MSP_OK && msp_dir_list_read(&list, output, NULL) == MSP_OK) {
            assert_int_equal(list.count, 0);
            msp_dir_list_release(&list);
        }
    }
}

static int
leave(void **state)
{
    msp_log_set_sink(MSP_LOG_NONE, NULL, NULL);
    msp_buf_release(&warnings);
    msp_pool_shutdown();
    return remove_scratch(state);
}

#define FRESH_TEST(name) cmocka_unit_test_setup(name, fresh)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH_TEST(ranks_stand_side_by_side_in_the_order_of_their_numbers),
        FRESH_TEST(rows_follow_the_configuration_and_then_the_first_rank),
        FRESH_TEST(a_name_is_found_as_text_with_a_dot_behind_it),
        FRESH_TEST(cells_without_a_value_show_both_maxima),
        FRESH_TEST(both_spellings_of_a_title_are_the_same),
        FRESH_TEST(ranks_that_cannot_be_used_are_named_and_the_others_merged),
        FRESH_TEST(of_several_results_of_a_rank_the_newest_counts),
        FRESH_TEST(other_files_are_left_out_or_refused),
        FRESH_TEST(wrong_places_are_named),
        FRESH_TEST(an_older_result_is_not_overwritten),
        FRESH_TEST(whichever_allocation_fails_nothing_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, leave);
}
