/* test_str.c - promises of core/str.h. */
#include "unit.h"
#include <limits.h>
#include "core/alloc.h"
#include "core/str.h"

static void
pieces_of_text_are_found(void **state)
{
    msp_str s = MSP_STR("Functional.linear.0");
    char text[300];

    (void)state;
    assert_true(msp_str_starts(s, MSP_STR("Functional.")));
    assert_true(msp_str_starts(s, MSP_STR("")));
    assert_false(msp_str_starts(MSP_STR("Fun"), s));
    assert_true(msp_str_ends(s, MSP_STR(".0")));
    assert_true(msp_str_ends(s, s));
    assert_false(msp_str_ends(s, MSP_STR(".1")));
    assert_ptr_equal(msp_str_find(s, MSP_STR("linear")), s.p + 11);
    assert_ptr_equal(msp_str_find(s, MSP_STR("")), s.p);
    assert_null(msp_str_find(s, MSP_STR("Linear")));
    assert_null(msp_str_find((msp_str){NULL, 0}, MSP_STR("x")));
    assert_ptr_equal(msp_str_find(s, (msp_str){s.p + s.len - 5, 5}), s.p + s.len - 5); /* the last place */
    memset(text, 'a', sizeof(text));
    memcpy(text + sizeof(text) - 5, "aaaab", 5);
    for (size_t n = 5; n <= sizeof(text); n += 5) /* names, and texts that are longer */
        assert_ptr_equal(msp_str_find((msp_str){text + sizeof(text) - n, n}, MSP_STR("aaaab")),
                         text + sizeof(text) - 5);
    assert_null(msp_str_find((msp_str){s.p, 14}, MSP_STR("linear"))); /* it would end behind the text */
    assert_true(msp_str_eq((msp_str){NULL, 0}, MSP_STR("")));
    assert_int_equal(msp_str_of(NULL).len, 0);
}

/* Of every length, each in memory that ends with it, and different in any one place. */
static void
texts_are_equal_when_all_their_bytes_are(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 40; n++) {
        char *a = malloc(n), *b = malloc(n);

        assert_true(a != NULL && b != NULL);
        for (size_t i = 0; i < n; i++)
            a[i] = b[i] = (char)('a' + i);
        assert_true(msp_str_eq((msp_str){a, n}, (msp_str){b, n}));
        assert_false(msp_str_eq((msp_str){a, n}, (msp_str){b, n - 1}));
        for (size_t i = 0; i < n; i++) {
            b[i] ^= 1;
            assert_false(msp_str_eq((msp_str){a, n}, (msp_str){b, n}));
            b[i] ^= 1;
        }
        free(a);
        free(b);
    }
}

static void
parts_are_cut_off_at_their_dots(void **state)
{
    msp_str s = MSP_STR("a..bc");

    (void)state;
    assert_true(msp_str_eq(msp_str_shift(&s), MSP_STR("a")));
    assert_true(msp_str_eq(msp_str_shift(&s), MSP_STR("")));
    assert_true(msp_str_eq(msp_str_shift(&s), MSP_STR("bc")));
    assert_int_equal(s.len, 0);
    assert_int_equal(msp_str_shift(&s).len, 0);
    s = MSP_STR("a..bc");
    assert_true(msp_str_eq(msp_str_pop(&s), MSP_STR("bc")));
    assert_true(msp_str_eq(msp_str_pop(&s), MSP_STR("")));
    assert_true(msp_str_eq(msp_str_pop(&s), MSP_STR("a")));
    assert_int_equal(s.len, 0);
    assert_int_equal(msp_str_pop(&s).len, 0);
    assert_int_equal(msp_str_count(MSP_STR("a..bc"), '.'), 2);
    assert_int_equal(msp_str_count(MSP_STR(""), '.'), 0);
}

static void
words_are_looked_up_and_digits_told(void **state)
{
    static const char *const words[] = {"add", "sub"};

    (void)state;
    assert_true(MSP_STR_IS_ONE_OF(MSP_STR("sub"), words));
    assert_false(MSP_STR_IS_ONE_OF(MSP_STR("su"), words));
    assert_true(msp_str_has(MSP_STR("Tensor.add.0"), "add"));
    assert_false(msp_str_has(MSP_STR("Tensor.add.0"), "sub"));
    assert_true(msp_str_is_digits(MSP_STR("0123456789")));
    assert_false(msp_str_is_digits(MSP_STR("1a")));
    assert_false(msp_str_is_digits(MSP_STR("")));
}

static void
order_is_by_bytes_and_shorter_first(void **state)
{
    (void)state;
    assert_true(msp_str_cmp(MSP_STR("a"), MSP_STR("b")) < 0);
    assert_true(msp_str_cmp(MSP_STR("a\xFF"), MSP_STR("a\x01")) > 0);
    assert_true(msp_str_cmp(MSP_STR("a"), MSP_STR("aa")) < 0);
    assert_int_equal(msp_str_cmp(MSP_STR("aa"), MSP_STR("aa")), 0);
    assert_true(msp_str_cmp((msp_str){NULL, 0}, MSP_STR("a")) < 0);
}

static void
numbers_are_digits_that_fit_and_nothing_else(void **state)
{
    const char *bad[] = {"", "-1", "+1", " 1", "1 ", "1a", "18446744073709551616", "99999999999999999999999"};
    unsigned long long v = 5;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(msp_str_to_u64(msp_str_of(bad[i]), &v));
        assert_int_equal(v, 5);
    }
    assert_true(msp_str_to_u64(MSP_STR("18446744073709551615"), &v));
    assert_true(v == ULLONG_MAX);
    assert_true(msp_str_to_u64(MSP_STR("000"), &v));
    assert_true(v == 0);
}

static void
a_copy_is_terminated_and_its_own(void **state)
{
    char text[] = "abc";
    char *copy = msp_str_copy((msp_str){text, 2}), *empty = msp_str_copy((msp_str){NULL, 0});

    (void)state;
    text[0] = 'x';
    assert_string_equal(copy, "ab");
    assert_string_equal(empty, "");
    msp_free(copy);
    msp_free(empty);
    msp_alloc_fail_after(0);
    assert_null(msp_str_copy(MSP_STR("abc")));
    msp_alloc_fail_after(-1);
}

static void
a_buffer_grows_and_stays_terminated(void **state)
{
    msp_buf b = {0};

    (void)state;
    for (int i = 0; i < 5000; i++) {
        msp_buf_char(&b, (char)('a' + i % 26));
        assert_int_equal(b.p[b.len], '\0');
    }
    assert_int_equal(b.len, 5000);
    assert_int_equal(b.p[4999], 'a' + 4999 % 26);
    msp_buf_clear(&b);
    assert_string_equal(b.p, "");
    msp_buf_add(&b, NULL, 0);
    msp_buf_str(&b, MSP_STR("x"));
    msp_buf_text(&b, "yz");
    assert_string_equal(b.p, "xyz");
    assert_true(msp_str_eq(msp_buf_view(&b), MSP_STR("xyz")));
    msp_buf_release(&b);
    msp_buf_release(&b);
}

static void
room_is_there_before_it_is_used(void **state)
{
    msp_buf b = {0};
    char *at = msp_buf_room(&b, 1000);

    (void)state;
    assert_non_null(at);
    memset(at, 'x', 1000);
    b.len += 1000;
    msp_buf_char(&b, '!');
    assert_int_equal(b.p[1000], '!');
    assert_null(msp_buf_room(&b, SIZE_MAX));
    assert_true(b.failed);
    msp_buf_release(&b);
}

static void
formatted_text_of_any_length_is_appended(void **state)
{
    char expected[1024];
    msp_buf b = {0};

    (void)state;
    for (int n = 0; n < 1000; n++) {
        msp_buf_clear(&b);
        msp_buf_text(&b, "<");
        msp_buf_printf(&b, "%*d>", n, 7);
        snprintf(expected, sizeof(expected), "<%*d>", n, 7);
        assert_string_equal(b.p, expected);
        assert_int_equal(b.len, strlen(expected));
    }
    msp_buf_release(&b);
}

static void
a_failed_append_is_remembered(void **state)
{
    msp_error err;
    msp_buf b = {0};

    (void)state;
    msp_buf_text(&b, "kept");
    assert_int_equal(msp_buf_status(&b, &err), MSP_OK);
    msp_alloc_fail_after(0);
    msp_buf_printf(&b, "%1000d", 1);
    msp_alloc_fail_after(-1);
    msp_buf_text(&b, "x"); /* would fit, but a hole would be worse than an end */
    assert_string_equal(b.p, "kept");
    assert_int_equal(msp_buf_status(&b, &err), MSP_E_NOMEM);
    msp_buf_clear(&b);
    assert_int_equal(msp_buf_status(&b, &err), MSP_OK);
    msp_buf_release(&b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pieces_of_text_are_found),
        TEST(texts_are_equal_when_all_their_bytes_are),
        TEST(parts_are_cut_off_at_their_dots),
        TEST(words_are_looked_up_and_digits_told),
        TEST(order_is_by_bytes_and_shorter_first),
        TEST(numbers_are_digits_that_fit_and_nothing_else),
        TEST(a_copy_is_terminated_and_its_own),
        TEST(a_buffer_grows_and_stays_terminated),
        TEST(room_is_there_before_it_is_used),
        TEST(formatted_text_of_any_length_is_appended),
        TEST(a_failed_append_is_remembered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
