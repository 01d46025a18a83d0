/* test_locale.c - promises of core/locale.h, in a program that has chosen the locale of another country. */
#include "unit.h"
#include "core/locale.h"

static void
a_printed_number_has_a_point_in_every_country(void **state)
{
    char text[64];
    msp_buf b = {0};
    msp_error err;

    (void)state;
    assert_non_null(set_foreign_locale("de_DE"));
    snprintf(text, sizeof(text), "%.2f", 1.5);
    assert_string_equal(text, "1,50"); /* what the program itself prints does not change */
    assert_int_equal(msp_snprintf(text, sizeof(text), "%.2f %s", 1.5, "kg"), 7);
    assert_string_equal(text, "1.50 kg");
    msp_buf_printf(&b, "%g", 2.5);
    assert_string_equal(b.p, "2.5");
    msp_error_set(&err, MSP_E_LIMIT, "%g", 3.5);
    msp_error_prefix(&err, MSP_E_LIMIT, "%g, ", 4.5);
    assert_string_equal(err.message, "4.5, 3.5");
    snprintf(text, sizeof(text), "%.2f", 1.5);
    assert_string_equal(text, "1,50");
    setlocale(LC_ALL, "C");
    msp_buf_release(&b);
}

static void
letters_are_compared_alike_in_every_country(void **state)
{
    (void)state;
    assert_non_null(set_foreign_locale("tr_TR"));
    assert_true(msp_str_eq_nocase(MSP_STR("AZ INFINITY az"), MSP_STR("az infinity AZ")));
    assert_false(msp_str_eq_nocase(MSP_STR("inf"), MSP_STR("infi")));
    assert_false(msp_str_eq_nocase(MSP_STR("[{@`"), MSP_STR("{[`@"))); /* 32 apart, as letters are */
    assert_false(msp_str_eq_nocase(MSP_STR("\xC3\x89"), MSP_STR("\xC3\xA9")));
    assert_true(msp_str_eq_nocase(MSP_STR(""), (msp_str){NULL, 0}));
    setlocale(LC_ALL, "C");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_printed_number_has_a_point_in_every_country),
        TEST(letters_are_compared_alike_in_every_country),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
