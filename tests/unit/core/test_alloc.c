/* test_alloc.c - promises of core/alloc.h and core/vec.h. */
#include "unit.h"
#include <pthread.h>
#include "core/alloc.h"
#include "core/vec.h"

static void
sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    assert_null(msp_alloc(SIZE_MAX, 2));
    assert_null(msp_alloc_zero(SIZE_MAX / 2 + 1, 2));
    assert_null(msp_realloc(NULL, SIZE_MAX, SIZE_MAX));
}

static void
nothing_is_a_block_too(void **state)
{
    void *p = msp_alloc(0, 8), *q = msp_alloc_zero(8, 0);

    (void)state;
    assert_non_null(p);
    assert_non_null(q);
    msp_free(p);
    msp_free(q);
    msp_free(NULL);
}

static void
zeroed_memory_is_zero_and_a_resized_block_keeps_its_bytes(void **state)
{
    unsigned char *p = msp_alloc_zero(100, 3);

    (void)state;
    for (int i = 0; i < 300; i++)
        assert_int_equal(p[i], 0);
    memset(p, 7, 300);
    p = msp_realloc(p, 100000, 1);
    for (int i = 0; i < 300; i++)
        assert_int_equal(p[i], 7);
    msp_free(p);
}

static void
live_blocks_are_counted(void **state)
{
    int64_t before = msp_alloc_live();
    void *a = msp_alloc(1, 1), *b = msp_realloc(NULL, 1, 1);

    (void)state;
    assert_int_equal(msp_alloc_live(), before + 2);
    b = msp_realloc(b, 1000, 1);
    assert_int_equal(msp_alloc_live(), before + 2);
    msp_free(a);
    msp_free(b);
    assert_int_equal(msp_alloc_live(), before);
}

static void
the_nth_allocation_fails_and_all_after_it(void **state)
{
    void *p[3];

    (void)state;
    msp_alloc_fail_after(2);
    for (int i = 0; i < 3; i++)
        p[i] = msp_alloc(1, 1);
    assert_non_null(p[0]);
    assert_non_null(p[1]);
    assert_null(p[2]);
    assert_null(msp_alloc_zero(1, 1));
    assert_null(msp_realloc(p[0], 2, 1)); /* p[0] stays valid */
    msp_alloc_fail_after(-1);
    p[2] = msp_alloc(1, 1);
    assert_non_null(p[2]);
    for (int i = 0; i < 3; i++)
        msp_free(p[i]);
}

static void *
take_many(void *payload)
{
    int *got = payload;

    for (int i = 0; i < 1000; i++) {
        void *p = msp_alloc(1, 16);

        *got += p != NULL;
        msp_free(p);
    }
    return NULL;
}

static void
threads_share_what_may_still_succeed(void **state)
{
    pthread_t threads[4];
    int got[4] = {0}, sum = 0;

    (void)state;
    msp_alloc_fail_after(1234);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_many, &got[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        sum += got[i];
    }
    msp_alloc_fail_after(-1);
    assert_int_equal(sum, 1234);
}

static void
a_vector_grows_and_keeps_its_items(void **state)
{
    size_t cap = 0;
    int *items = NULL;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        assert_true(msp_vec_grow((void **)&items, &cap, (size_t)i + 1, sizeof(*items)));
        assert_true(cap > (size_t)i);
        items[i] = i;
    }
    for (int i = 0; i < 10000; i++)
        assert_int_equal(items[i], i);
    msp_alloc_fail_after(0);
    assert_true(msp_vec_grow((void **)&items, &cap, cap, sizeof(*items)));
    assert_false(msp_vec_grow((void **)&items, &cap, cap + 1, sizeof(*items)));
    msp_alloc_fail_after(-1);
    assert_false(msp_vec_grow((void **)&items, &cap, SIZE_MAX / 2, sizeof(*items)));
    assert_int_equal(items[9999], 9999);
    msp_free(items);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sizes_that_overflow_are_refused),
        TEST(nothing_is_a_block_too),
        TEST(zeroed_memory_is_zero_and_a_resized_block_keeps_its_bytes),
        TEST(live_blocks_are_counted),
        TEST(the_nth_allocation_fails_and_all_after_it),
        TEST(threads_share_what_may_still_succeed),
        TEST(a_vector_grows_and_keeps_its_items),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
