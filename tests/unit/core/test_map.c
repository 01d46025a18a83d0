/* test_map.c - promises of core/map.h. */
#include "unit.h"
#include "core/alloc.h"
#include "core/arena.h"
#include "core/map.h"

static msp_str
numbered(msp_arena *a, const char *format, int i)
{
    char text[64];
    int n = snprintf(text, sizeof(text), format, i);

    return (msp_str){msp_arena_text(a, text, (size_t)n), (size_t)n};
}

static void
an_empty_map_holds_nothing(void **state)
{
    msp_map m = {0};

    (void)state;
    assert_null(msp_map_get(&m, MSP_STR("")));
    assert_null(msp_map_get(&m, MSP_STR("x")));
    msp_map_release(&m);
}

static void
the_first_value_of_a_key_stays(void **state)
{
    msp_map m = {0};
    bool added;

    (void)state;
    assert_int_equal(msp_map_put(&m, MSP_STR("a"), 1, &added)->value, 1);
    assert_true(added);
    assert_int_equal(msp_map_put(&m, MSP_STR("a"), 2, &added)->value, 1);
    assert_false(added);
    msp_map_get(&m, MSP_STR("a"))->value = 3;
    assert_int_equal(msp_map_put(&m, MSP_STR("a"), 4, NULL)->value, 3);
    assert_non_null(msp_map_put(&m, MSP_STR(""), 9, NULL));
    assert_int_equal(msp_map_get(&m, (msp_str){NULL, 0})->value, 9);
    assert_null(msp_map_get(&m, MSP_STR("A")));
    assert_int_equal(m.count, 2);
    msp_map_release(&m);
}

/* Probe sequences of every length occur on the way: the table is up to three quarters full. */
static void
a_million_entries_are_found_again_in_order(void **state)
{
    enum { N = 1000000 };
    msp_arena a = {0};
    msp_map m = {0};

    (void)state;
    for (int i = 0; i < N; i++)
        assert_non_null(msp_map_put(&m, numbered(&a, "Functional.linear.%d.forward.input.0", i), i, NULL));
    assert_int_equal(m.count, N);
    for (int i = 0; i < N; i++) {
        msp_map_entry *e = msp_map_get(&m, m.entries[i].key);

        assert_ptr_equal(e, &m.entries[i]);
        assert_int_equal(e->value, i);
    }
    for (int i = 0; i < 1000; i++)
        assert_null(msp_map_get(&m, numbered(&a, "Functional.linear.%d.backward.input.0", i)));
    msp_map_release(&m);
    msp_arena_release(&a);
}

/* Keys that differ in one bit of any byte, and keys of which one is the beginning of the other. */
static void
keys_that_are_nearly_equal_are_told_apart(void **state)
{
    char bytes[24] = {0};
    msp_arena a = {0};
    msp_map m = {0};
    int n = 0;

    (void)state;
    for (size_t len = 0; len <= sizeof(bytes); len++)
        for (size_t bit = 0; bit < len * 8; bit++) {
            msp_str key;

            bytes[bit / 8] ^= (char)(1 << bit % 8);
            key = (msp_str){msp_arena_text(&a, bytes, len), len};
            bytes[bit / 8] ^= (char)(1 << bit % 8);
            assert_int_equal(msp_map_put(&m, key, n, NULL)->value, n);
            n++;
        }
    assert_int_equal(m.count, n);
    msp_map_release(&m);
    msp_arena_release(&a);
}

static void
a_failing_allocation_leaves_the_map_as_it_was(void **state)
{
    int64_t live = msp_alloc_live();
    msp_arena a = {0};
    msp_map m = {0};
    size_t failures = 0;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        msp_str key = numbered(&a, "key %d", i);
        size_t count = m.count;

        msp_alloc_fail_after(0);
        if (msp_map_put(&m, key, i, NULL) == NULL) {
            failures++;
            assert_int_equal(m.count, count);
            assert_null(msp_map_get(&m, key));
            msp_alloc_fail_after(1); /* one of the two allocations that a growing map makes */
            if (msp_map_put(&m, key, i, NULL) == NULL)
                assert_int_equal(m.count, count);
        }
        msp_alloc_fail_after(-1);
        assert_int_equal(msp_map_put(&m, key, i, NULL)->value, i);
        assert_int_equal(msp_map_get(&m, MSP_STR("key 0"))->value, 0);
    }
    assert_true(failures > 10);
    msp_map_release(&m);
    msp_arena_release(&a);
    assert_int_equal(msp_alloc_live(), live);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_map_holds_nothing),
        TEST(the_first_value_of_a_key_stays),
        TEST(a_million_entries_are_found_again_in_order),
        TEST(keys_that_are_nearly_equal_are_told_apart),
        TEST(a_failing_allocation_leaves_the_map_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
