/* test_xlsx_threads.c - ranks are compared beside each other, so workbooks are finished beside each other. */
#include "unit.h"
#include "core/pool.h"
#include "msprobe/table.h"

enum { BOOKS = 16 };

static msp_status results[BOOKS];
static char paths[BOOKS][512];

static void
write_book(size_t i, void *payload)
{
    const msp_column column = {"n", 0};
    msp_cell cell = msp_cell_int((int64_t)i);
    msp_table *t = NULL;

    (void)payload;
    results[i] = msp_table_open(&t, paths[i], MSP_TABLE_XLSX, &column, 1, NULL, NULL);
    if (results[i] == MSP_OK)
        results[i] = msp_table_row(t, &cell, MSP_ROW_PLAIN, NULL);
    if (results[i] == MSP_OK)
        results[i] = msp_table_finish(t, NULL);
    msp_table_close(t);
}

/* What could go wrong is seen by the thread sanitizer; here every book must at least be there. */
static void
many_books_can_be_written_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < BOOKS; i++)
        snprintf(paths[i], sizeof(paths[i]), "%s/book%d.xlsx", scratch_dir(), i);
    msp_pool_run(BOOKS, 4, write_book, NULL);
    for (int i = 0; i < BOOKS; i++) {
        assert_int_equal(results[i], MSP_OK);
        assert_int_equal(access(paths[i], R_OK), 0);
    }
    msp_pool_shutdown();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {TEST(many_books_can_be_written_at_once)};

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
