/* test_error.c - promises of msprobe/error.h. */
#include "unit.h"
#include <errno.h>
#include "msprobe/error.h"

static void
every_status_has_a_text(void **state)
{
    (void)state;
    for (int s = MSP_OK; s <= MSP_E_CHANGED; s++) {
        assert_true(strlen(msp_status_text((msp_status)s)) > 1);
        assert_string_not_equal(msp_status_text((msp_status)s), "unknown status");
    }
    assert_string_equal(msp_status_text((msp_status)(MSP_E_CHANGED + 1)), "unknown status");
    assert_string_equal(msp_status_text((msp_status)-1), "unknown status");
}

static void
setting_reports_and_returns(void **state)
{
    msp_error err;

    (void)state;
    assert_int_equal(msp_error_set(&err, MSP_E_FORMAT, "cut short at byte %d", 7), MSP_E_FORMAT);
    assert_int_equal(err.status, MSP_E_FORMAT);
    assert_string_equal(err.message, "cut short at byte 7");
    assert_int_equal(msp_error_set(NULL, MSP_E_NOMEM, "nobody listens"), MSP_E_NOMEM);
    assert_int_equal(msp_error_set_errno(NULL, MSP_E_IO, ENOSPC, "nobody"), MSP_E_IO);
    assert_int_equal(msp_error_prefix(NULL, MSP_E_IO, "nobody"), MSP_E_IO);
}

static void
a_message_is_one_line_and_never_empty(void **state)
{
    msp_error err;

    (void)state;
    assert_int_equal(msp_error_set(&err, MSP_E_LIMIT, "%s", ""), MSP_E_LIMIT);
    assert_string_equal(err.message, "limit reached");
    assert_int_equal(msp_error_set(&err, MSP_E_IO, "a\nb\r\nc"), MSP_E_IO);
    assert_string_equal(err.message, "a b  c");
}

static void
errno_is_told_at_the_end_and_a_prefix_at_the_start(void **state)
{
    msp_error err;

    (void)state;
    assert_int_equal(msp_error_set_errno(&err, MSP_E_IO, ENOSPC, "cannot write"), MSP_E_IO);
    assert_string_equal(err.message, "cannot write: No space left on device");
    assert_int_equal(msp_error_prefix(&err, MSP_E_FORMAT, "%s: ", "x.npy"), MSP_E_IO);
    assert_string_equal(err.message, "x.npy: cannot write: No space left on device");
}

/* Texts of every length around the limit, made of characters of two and three bytes: never half a one at the end. */
static void
a_long_message_is_cut_between_characters(void **state)
{
    char text[2048];
    msp_error err;

    (void)state;
    for (size_t pad = 0; pad < 6; pad++) {
        size_t n;

        memset(text, 'x', pad);
        for (n = pad; n + 5 < sizeof(text); n += 5)
            memcpy(text + n, "\xC3\xA4\xE4\xBD\xA0", 5);
        text[n] = '\0';
        assert_int_equal(msp_error_set(&err, MSP_E_IO, "%s", text), MSP_E_IO);
        n = strlen(err.message);
        assert_true(n >= sizeof(err.message) - 4 && n < sizeof(err.message));
        assert_memory_equal(err.message, text, n);
        assert_true((unsigned char)text[n] < 0x80 || (unsigned char)text[n] >= 0xC0);
        assert_int_equal(msp_error_prefix(&err, MSP_E_IO, "p"), MSP_E_IO);
        n = strlen(err.message);
        assert_memory_equal(err.message + 1, text, n - 1);
        assert_true((unsigned char)text[n - 1] < 0x80 || (unsigned char)text[n - 1] >= 0xC0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_status_has_a_text),
        TEST(setting_reports_and_returns),
        TEST(a_message_is_one_line_and_never_empty),
        TEST(errno_is_told_at_the_end_and_a_prefix_at_the_start),
        TEST(a_long_message_is_cut_between_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
