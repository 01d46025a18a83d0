/* test_arena.c - promises of core/arena.h. */
#include "unit.h"
#include "core/alloc.h"
#include "core/arena.h"

static void
blocks_are_aligned_and_do_not_overlap(void **state)
{
    msp_arena a = {0};
    unsigned char *prev = NULL;

    (void)state;
    for (size_t n = 1; n < 3000; n++) {
        unsigned char *p = msp_arena_alloc(&a, n, 1);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        memset(p, (int)n, n);
        if (prev != NULL)
            assert_int_equal(prev[0], (unsigned char)(n - 1));
        prev = p;
    }
    msp_arena_release(&a);
}

static void
text_is_copied_and_terminated(void **state)
{
    msp_arena a = {0};
    char *t = msp_arena_text(&a, "abcdef", 3);

    (void)state;
    assert_string_equal(t, "abc");
    assert_string_equal(msp_arena_text(&a, NULL, 0), "");
    msp_arena_release(&a);
}

static void
a_failed_allocation_gives_null_and_leaves_the_arena_usable(void **state)
{
    msp_arena a = {0};
    int64_t live = msp_alloc_live();

    (void)state;
    msp_alloc_fail_after(0);
    assert_null(msp_arena_alloc(&a, 1, 10));
    msp_alloc_fail_after(-1);
    assert_non_null(msp_arena_alloc(&a, 1, 10));
    assert_null(msp_arena_alloc(&a, SIZE_MAX / 2, 3)); /* overflow */
    assert_null(msp_arena_alloc(&a, SIZE_MAX - 8, 1));
    msp_arena_release(&a);
    assert_int_equal(msp_alloc_live(), live);
}

static void
lent_memory_is_used_first(void **state)
{
    _Alignas(16) char lent[64];
    int64_t live = msp_alloc_live();
    msp_arena a = {0};

    (void)state;
    msp_arena_lend(&a, lent, sizeof(lent));
    assert_ptr_equal(msp_arena_alloc(&a, 3, 16), lent);
    assert_int_equal(msp_alloc_live(), live);
    assert_non_null(msp_arena_alloc(&a, 2, 16)); /* no room: a chunk of its own */
    assert_int_equal(msp_alloc_live(), live + 1);
    msp_arena_release(&a);
    assert_int_equal(msp_alloc_live(), live);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_are_aligned_and_do_not_overlap),
        TEST(text_is_copied_and_terminated),
        TEST(a_failed_allocation_gives_null_and_leaves_the_arena_usable),
        TEST(lent_memory_is_used_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
