/*
 * fuzz_number.c - the input as a double is printed and read back; the input as text is read as strtod() reads it, and
 * as a list of numbers as they are read one by one.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/number.h"

static uint64_t
to_bits(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static void
check_double(const uint8_t *data)
{
    char text[32];
    double v, again;
    size_t n;

    memcpy(&v, data, sizeof(v));
    n = msp_f64_repr(text, v);
    if (n > 24 || n != strlen(text) || !msp_f64_parse((msp_str){text, n}, &again))
        abort();
    if (v != v ? again == again : to_bits(again) != to_bits(v) || to_bits(strtod(text, NULL)) != to_bits(v))
        abort();
}

static void
check_text(const uint8_t *data, size_t size)
{
    msp_str s = {(const char *)data, size};
    char *copy = malloc(size + 1);
    int64_t i;
    double v, theirs;

    if (copy == NULL)
        return;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    if (msp_f64_parse(s, &v)) {
        theirs = strtod(copy, NULL);
        if (v != v ? theirs == theirs : to_bits(v) != to_bits(theirs))
            abort();
    }
    if (msp_i64_parse(s, &i) && i != strtoll(copy, NULL, 10))
        abort();
    free(copy);
}

static void
check_list(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data, *end = p + size, *at = p;
    double row[16], one;
    size_t n = msp_f64_scan_list(p, &at, end, row, 16);

    for (size_t i = 0; i < n; i++) {
        p = msp_f64_scan(p, end, &one);
        if (p == NULL || end - p <= 2 || p[0] != ',' || p[1] != ' ' || to_bits(one) != to_bits(row[i]))
            abort();
        p += 2;
    }
    if (p != at)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 8)
        check_double(data);
    check_text(data, size);
    check_list(data, size);
    return 0;
}
