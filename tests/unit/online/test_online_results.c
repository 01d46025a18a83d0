/* test_online_results.c - promises of online/results.h: rows as they come, and in order in the end. */
#include "unit.h"
#include <dirent.h>
#include <sys/stat.h>
#include "core/alloc.h"
#include "core/file.h"
#include "online/results.h"

static void
count(const char *name, size_t len, void *payload)
{
    (void)name;
    (void)len;
    ++*(int *)payload;
}

static void
add(msp_results *r, uint64_t number, const char *result, const char *details)
{
    assert_int_equal(msp_results_add(r, number, msp_str_of(result), msp_str_of(details), NULL), MSP_OK);
}

static void
assert_file(const char *name, const char *header, const char *rows)
{
    char want[4096], *text;
    size_t size;

    snprintf(want, sizeof(want), "%s%s", header, rows);
    assert_int_equal(msp_file_read(&text, &size, scratch_path(name), 1 << 20, NULL), MSP_OK);
    assert_string_equal(text, want);
    msp_free(text);
}

static void
rows_are_there_as_they_come_and_in_order_in_the_end(void **state)
{
    msp_results r;
    int known = 0;

    (void)state;
    assert_int_equal(msp_results_open(&r, scratch_dir(), "20260101000000", "_rank1", count, &known, NULL), MSP_OK);
    add(&r, 9, "T.c.0,pass, ,\r\n", "T.c.0.forward.output.0,x\r\n");
    add(&r, 2, "T.a.0,SKIP, ,why\r\n", "");
    assert_file("accuracy_checking_result_20260101000000_rank1.csv", msp_precheck_result_header(),
                "T.c.0,pass, ,\r\nT.a.0,SKIP, ,why\r\n");
    add(&r, 5, "T.b.0,pass, ,\r\n", "T.b.0.forward.output.0,x\r\n");
    assert_int_equal(msp_results_finish(&r, NULL), MSP_OK);
    assert_file("accuracy_checking_result_20260101000000_rank1.csv", msp_precheck_result_header(),
                "T.a.0,SKIP, ,why\r\nT.b.0,pass, ,\r\nT.c.0,pass, ,\r\n");
    assert_file("accuracy_checking_details_20260101000000_rank1.csv", msp_precheck_details_header(),
                "T.b.0.forward.output.0,x\r\nT.c.0.forward.output.0,x\r\n");
    assert_int_equal(known, 0);
}

static void
whoever_goes_on_knows_the_rows_that_are_whole(void **state)
{
    msp_results r;
    int known = 0;

    (void)state;
    assert_int_equal(msp_results_open(&r, scratch_dir(), "20260101000001", "", count, &known, NULL), MSP_OK);
    add(&r, 2, "T.b.0,pass, ,\r\n", "T.b.0.forward.output.0,x\r\n");
    add(&r, 3, "T.c.0,pa", ""); /* and then it was killed */
    msp_results_close(&r);
    assert_int_equal(msp_results_open(&r, scratch_dir(), "20260101000001", "", count, &known, NULL), MSP_OK);
    assert_int_equal(known, 1);
    add(&r, 3, "T.c.0,pass, ,\r\n", "");
    add(&r, 1, "T.a.0,pass, ,\r\n", "");
    assert_int_equal(msp_results_finish(&r, NULL), MSP_OK);
    assert_file("accuracy_checking_result_20260101000001.csv", msp_precheck_result_header(),
                "T.b.0,pass, ,\r\nT.c.0,pass, ,\r\nT.a.0,pass, ,\r\n");
}

static void
a_link_in_the_files_place_is_refused(void **state)
{
    const char *there = write_file("theirs", "x", 1);
    msp_results r;
    int known = 0;

    (void)state;
    assert_int_equal(symlink(there, scratch_path("accuracy_checking_result_20260101000002.csv")), 0);
    assert_int_equal(msp_results_open(&r, scratch_dir(), "20260101000002", "", count, &known, NULL), MSP_E_IO);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_are_there_as_they_come_and_in_order_in_the_end),
        TEST(whoever_goes_on_knows_the_rows_that_are_whole),
        TEST(a_link_in_the_files_place_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
