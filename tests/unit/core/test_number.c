/*
 * test_number.c - promises of core/number.h. Oracles: tables that Python wrote (tests/data/json), and the C library's
 * strtod() and snprintf() on random numbers; MSP_TEST_DOUBLES says how many of them, for a longer look than usual.
 */
#include <math.h>

#include "unit.h"
#include "core/cpu.h"
#include "core/number.h"

static uint64_t seed = 88172645463325252ULL;

static uint64_t
next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static long
how_many(void)
{
    const char *n = getenv("MSP_TEST_DOUBLES");

    return n != NULL ? atol(n) : 300000;
}

static double
from_bits(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

static uint64_t
to_bits(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

/* All bit patterns, and kinds that random bits hardly ever give. */
static double
random_double(long i)
{
    uint64_t x = next_random();

    switch (i % 5) {
    case 0:
        return from_bits(x);
    case 1: /* few significant bits */
        return from_bits(x & ~((1ULL << next_random() % 53) - 1));
    case 2: /* everyday magnitudes */
        return from_bits(x >> 12 | (1023 - 40 + next_random() % 100) << 52);
    case 3: /* subnormal */
        return from_bits(x >> (12 + next_random() % 52));
    default: /* few decimal digits */
        return (double)(int64_t)(x % 100000000) / (double)(1 + next_random() % 1000) * pow(10, (double)(x >> 60) - 8);
    }
}

static double
parse(const char *text)
{
    double v = -12345;

    if (!msp_f64_parse(msp_str_of(text), &v))
        fail_msg("'%s' was refused", text);
    return v;
}

static FILE *
open_data(const char *name)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof(path), "%s/json/%s", MSP_TEST_DATA, name);
    f = fopen(path, "r");
    assert_non_null(f);
    return f;
}

static void
repr_is_what_python_prints(void **state)
{
    FILE *f = open_data("floats.txt");
    unsigned long long bits;
    char expected[64], text[32];
    int n = 0;

    (void)state;
    while (fscanf(f, "%llx %63s", &bits, expected) == 2) {
        assert_int_equal(msp_f64_repr(text, from_bits(bits)), strlen(expected));
        assert_string_equal(text, expected);
        n++;
    }
    fclose(f);
    assert_true(n > 4000);
}

static void
text_is_read_as_python_reads_it(void **state)
{
    static char text[4096];
    FILE *f = open_data("decimals.txt");
    unsigned long long bits;
    int n = 0;

    (void)state;
    while (fscanf(f, "%4095s %llx", text, &bits) == 2) {
        double v = parse(text);

        if (isnan(from_bits(bits)) ? !isnan(v) : to_bits(v) != bits)
            fail_msg("%s: %a, not %a", text, v, from_bits(bits));
        n++;
    }
    fclose(f);
    assert_true(n > 1500);
}

/* The digits of a decimal without point, exponent, leading and trailing zeros; returns how many. */
static int
significant_digits(char *out, const char *text)
{
    int n = 0, keep = 0;

    for (; *text != '\0' && *text != 'e'; text++) {
        if (*text < '0' || *text > '9' || (n == 0 && *text == '0'))
            continue;
        out[n++] = *text;
        if (*text != '0')
            keep = n;
    }
    out[keep] = '\0';
    return keep;
}

/* Reads back; one digit less does not; and when the nearest decimal of that length reads back, it is that one. */
static void
check_shortest(double v)
{
    char text[32], other[64], digits[32], other_digits[64];
    size_t len = msp_f64_repr(text, v);
    int n;

    assert_true(len <= 24 && text[len] == '\0');
    if (to_bits(strtod(text, NULL)) != to_bits(v))
        fail_msg("%s does not read back as %a", text, v);
    if (v == 0)
        return;
    n = significant_digits(digits, text);
    snprintf(other, sizeof(other), "%.*e", n - 1, v);
    significant_digits(other_digits, other);
    if (strtod(other, NULL) == v && strcmp(digits, other_digits) != 0)
        fail_msg("%s is not as near as %s", text, other);
    if (n > 1) {
        snprintf(other, sizeof(other), "%.*e", n - 2, v);
        if (strtod(other, NULL) == v)
            fail_msg("%s is longer than %s", text, other);
    }
}

static void
repr_is_the_shortest_text_that_reads_back(void **state)
{
    (void)state;
    for (long i = 0; i < how_many(); i++) {
        double v = random_double(i);

        if (isfinite(v))
            check_shortest(v);
    }
    for (int e = -1074; e < 1024; e++) {
        check_shortest(ldexp(1, e));
        check_shortest(nextafter(ldexp(1, e), 0));
        check_shortest(-nextafter(ldexp(1, e), INFINITY));
    }
    for (int64_t i = -100; i <= 100; i++)
        check_shortest((double)((1LL << 53) + i));
}

/* Seventeen digits with the point at every place, and every kind of exponent: a stray byte would be somebody's text. */
static void
repr_writes_to_its_32_bytes_alone(void **state)
{
    char buf[64], guard[32];

    (void)state;
    memset(guard, '#', sizeof(guard));
    for (int e = -320; e <= 300; e++) {
        size_t n;

        memset(buf, '#', sizeof(buf));
        n = msp_f64_repr(buf, -1.2345678901234567 * pow(10, e));
        assert_true(n <= 24 && buf[n] == '\0');
        assert_memory_equal(buf + 32, guard, sizeof(guard));
    }
}

static void
what_was_printed_reads_back(void **state)
{
    char text[512];

    (void)state;
    for (long i = 0; i < how_many(); i++) {
        double v = random_double(i);

        if (isnan(v))
            continue;
        msp_f64_repr(text, v);
        assert_int_equal(to_bits(parse(text)), to_bits(v));
        snprintf(text, sizeof(text), "%.*e", (int)(next_random() % 60), v);
        assert_int_equal(to_bits(parse(text)), to_bits(strtod(text, NULL)));
        if (fabs(v) < 1e100) {
            snprintf(text, sizeof(text), "%.*f", (int)(next_random() % 60), v);
            assert_int_equal(to_bits(parse(text)), to_bits(strtod(text, NULL)));
        }
    }
}

static void
any_digits_are_rounded_as_strtod_rounds_them(void **state)
{
    char text[128];

    (void)state;
    for (long i = 0; i < how_many(); i++) {
        size_t n = 0, digits = 1 + next_random() % 40;

        for (size_t k = 0; k < digits; k++) {
            text[n++] = (char)('0' + next_random() % 10);
            if (next_random() % digits == 0 && memchr(text, '.', n) == NULL)
                text[n++] = '.';
        }
        snprintf(text + n, sizeof(text) - n, "e%d", (int)(next_random() % 700) - 360);
        if (to_bits(parse(text)) != to_bits(strtod(text, NULL)))
            fail_msg("%s: %a, not %a", text, parse(text), strtod(text, NULL));
    }
}

static void
a_number_in_a_list_is_read_to_its_end_or_left_to_the_other_function(void **state)
{
    static const char *const refused[] = {"", "-", ".", "-.", "+1", "nan", "1e5", "1.5E3", "12345678901234567890"};
    char text[512];
    double v;

    (void)state;
    for (long i = 0; i < how_many(); i++) {
        double want = random_double(i);
        size_t n;
        const char *end;

        if (!isfinite(want) || fabs(want) > 1e15)
            continue;
        snprintf(text, sizeof(text), "%.*f, 7", (int)(next_random() % 25), want);
        n = strcspn(text, ",");
        end = msp_f64_scan(text, text + strlen(text), &v);
        if (end == NULL) {
            assert_true(n - strspn(text, "-0.") > 19 || n > 40);
            continue;
        }
        assert_ptr_equal(end, text + n);
        text[n] = '\0';
        if (to_bits(v) != to_bits(strtod(text, NULL)))
            fail_msg("%s: %a, not %a", text, v, strtod(text, NULL));
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        assert_null(msp_f64_scan(refused[i], refused[i] + strlen(refused[i]), &v));
    snprintf(text, sizeof(text), "0.%0400d", 7); /* far beyond the powers of ten that there is a table of */
    assert_null(msp_f64_scan(text, text + strlen(text), &v));
}

/* A number of the kinds that lists of tensors have, and now and then another. */
static void
random_item(char text[400], long i)
{
    double v = random_double(i);

    if (i % 3 == 0) /* a float32 of everyday size */
        v = (double)(float)((double)(int64_t)next_random() / 9223372036854775808.0 * (i % 2 == 0 ? 1 : 12));
    if (i % 7 == 0 && fabs(v) < 1e15)
        snprintf(text, 400, "%.*f", (int)(next_random() % 22), v);
    else
        msp_f64_repr(text, v);
}

/* The numbers of the list in text, each as strtod() reads it; returns how many came in rows. */
static size_t
check_list(const char *text, const char *end, size_t cap)
{
    double v[64];
    size_t in_rows = 0;

    for (const char *p = text; p < end;) {
        const char *at = p;
        size_t n = msp_f64_scan_list(text, &at, end, v, cap);
        char *behind;

        assert_true(n <= cap && at < end);
        for (size_t i = 0; i < n; i++, p = behind + 2)
            if (to_bits(v[i]) != to_bits(strtod(p, &behind)) || behind[0] != ',' || behind[1] != ' ')
                fail_msg("%.*s: %a, not %a", (int)(behind - p), p, v[i], strtod(p, NULL));
        assert_ptr_equal(p, at);
        in_rows += n;
        if (n < cap) {
            (void)strtod(p, &behind);
            p = behind + 2;
        }
    }
    return in_rows;
}

static void
numbers_in_rows_are_read_as_one_by_one(void **state)
{
    static char text[64 * 400 + 1];
    size_t in_rows = 0, all = 0;

    (void)state;
    for (long i = 0; i < how_many();) {
        size_t n = 0, items = 1 + next_random() % 64;

        for (size_t k = 0; k < items; k++) {
            char item[400];

            random_item(item, i++);
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", k > 0 ? ", " : "", item);
        }
        all += items;
        in_rows += check_list(text, text + n, 1 + next_random() % 64);
        msp_cpu_limit(MSP_CPU_SCALAR);
        check_list(text, text + n, 64);
        msp_cpu_limit(MSP_CPU_LEVELS);
    }
    if (msp_cpu_best() >= MSP_CPU_AVX2)
        assert_true(in_rows > all / 4);
}

static void
a_row_of_numbers_ends_where_something_else_comes(void **state)
{
    static const char *const odd[] = {"1e5", "nan", "x", "", " 1.5", "1.5 ", "1.5 , ", "true", "1.5,2.5"};
    char text[200];
    double v[8];

    (void)state;
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        const char *at = text;
        size_t n;

        snprintf(text, sizeof(text), "0.5, -1.25, %s, 0.12345678901234567890123456789012345678901234567890", odd[i]);
        n = msp_f64_scan_list(text, &at, text + strlen(text), v, 8);
        if (msp_cpu_best() >= MSP_CPU_AVX2)
            assert_true(n == 2 && v[0] == 0.5 && v[1] == -1.25 && at == text + 12);
    }
    for (size_t len = 0; len < 100; len++) { /* what is cut off is not looked at, and a comma alone is no end */
        char *cut = malloc(len + 1);
        const char *at = cut;

        for (size_t i = 0; i < len; i++)
            cut[i] = "0.12345678901234567890123456789012345, "[i % 39];
        (void)msp_f64_scan_list(cut, &at, cut + len, v, 8);
        assert_true(at < cut + len || (at == cut && len == 0));
        free(cut);
    }
}

static void
zeros_in_front_of_the_digits_are_no_digits(void **state)
{
    static const char *const texts[] = {"0.012600024230778217",  "-0.00012600024230778217", "0.0", "-0.0", "-0",
                                        "0.00000000000000000001"};
    double v;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_ptr_equal(msp_f64_scan(texts[i], texts[i] + strlen(texts[i]), &v), texts[i] + strlen(texts[i]));
        assert_true(to_bits(v) == to_bits(strtod(texts[i], NULL)));
    }
}

static void
what_is_no_number_is_refused(void **state)
{
    static const char *const texts[] = {"",   "-",    "+",      ".",    "-.",    "e5",   "1e",     "1e+",   "1e5x",
                                        " 1", "1 ",   "0x10",   "1..2", "1.2.3", "--1",  "+-1",    "1_000", "1,5",
                                        "na", "nano", "infini", "in",   "1e5.0", "1e 5", "nan(1)", "1f",    "i"};
    double v;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (msp_f64_parse(msp_str_of(texts[i]), &v))
            fail_msg("'%s' was read as %g", texts[i], v);
    assert_false(msp_f64_parse((msp_str){"1\0", 2}, &v));
    assert_true(msp_f64_parse((msp_str){"12345", 2}, &v) && v == 12);
}

static void
the_locale_has_no_say(void **state)
{
    static const char *const names[] = {"de_DE", "tr_TR"}; /* 1,5 is a number; i and I are two letters */
    char text[32];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_non_null(set_foreign_locale(names[i]));
        msp_f64_repr(text, 1.5);
        assert_string_equal(text, "1.5");
        assert_true(parse("1.5") == 1.5);
        assert_true(parse("9007199254740993.0000000000000000000001") == 9007199254740994.0);
        assert_true(parse("4503599627370496.5") == 4503599627370496.0);
        assert_true(isinf(parse("Infinity")));
        assert_true(isinf(parse("-INF")));
        assert_true(isnan(parse("NaN")));
        setlocale(LC_ALL, "C");
    }
}

static void
integers_are_printed_and_read(void **state)
{
    char text[MSP_INT_TEXT_MAX], expected[32];
    int64_t v;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t x = next_random() >> next_random() % 64;

        snprintf(expected, sizeof(expected), "%llu", (unsigned long long)x);
        assert_int_equal(msp_u64_text(text, x), strlen(expected));
        assert_string_equal(text, expected);
        snprintf(expected, sizeof(expected), "%lld", (long long)x);
        assert_int_equal(msp_i64_text(text, (int64_t)x), strlen(expected));
        assert_string_equal(text, expected);
        assert_true(msp_i64_parse(msp_str_of(text), &v) && v == (int64_t)x);
    }
    assert_int_equal(msp_u64_text(text, 0), 1);
    assert_int_equal(msp_i64_text(text, INT64_MIN), 20);
    assert_string_equal(text, "-9223372036854775808");
    assert_true(msp_i64_parse(MSP_STR("-9223372036854775808"), &v) && v == INT64_MIN);
    assert_true(msp_i64_parse(MSP_STR("9223372036854775807"), &v) && v == INT64_MAX);
    assert_false(msp_i64_parse(MSP_STR("9223372036854775808"), &v));
    assert_false(msp_i64_parse(MSP_STR("-9223372036854775809"), &v));
    assert_false(msp_i64_parse(MSP_STR(""), &v) || msp_i64_parse(MSP_STR("-"), &v) ||
                 msp_i64_parse(MSP_STR("1.0"), &v));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(repr_is_what_python_prints),
        TEST(text_is_read_as_python_reads_it),
        TEST(repr_is_the_shortest_text_that_reads_back),
        TEST(repr_writes_to_its_32_bytes_alone),
        TEST(what_was_printed_reads_back),
        TEST(any_digits_are_rounded_as_strtod_rounds_them),
        TEST(a_number_in_a_list_is_read_to_its_end_or_left_to_the_other_function),
        TEST(numbers_in_rows_are_read_as_one_by_one),
        TEST(a_row_of_numbers_ends_where_something_else_comes),
        TEST(zeros_in_front_of_the_digits_are_no_digits),
        TEST(what_is_no_number_is_refused),
        TEST(the_locale_has_no_say),
        TEST(integers_are_printed_and_read),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
