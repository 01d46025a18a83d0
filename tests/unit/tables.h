/* tables.h - what the tests of tables share: a table's end, and the end of a group whose writers use the pool. */
#ifndef MSP_TESTS_TABLES_H
#define MSP_TESTS_TABLES_H

#include "unit.h"
#include "core/pool.h"
#include "msprobe/table.h"

static inline void
finish(msp_table *t)
{
    msp_error err;

    if (msp_table_finish(t, &err) != MSP_OK)
        fail_msg("%s", err.message);
    msp_table_close(t);
}

/* Group teardown. */
static inline int
stop_pool_and_remove_scratch(void **state)
{
    msp_pool_shutdown();
    return remove_scratch(state);
}

#endif
