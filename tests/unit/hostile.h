/*
 * hostile.h - what every parser of bytes must survive: any cut, any flipped bit, any failing allocation.
 *
 * A parser under test is wrapped in a function that parses (p, size), touches all that it got, gives everything back
 * and returns the status. Inputs are copies of exactly their size, so that AddressSanitizer sees a read past the end.
 */
#ifndef MSP_TESTS_HOSTILE_H
#define MSP_TESTS_HOSTILE_H

#include "unit.h"
#include "core/alloc.h"
#include "core/file.h"

typedef msp_status parse_once(const void *p, size_t size);

/* The bytes of tests/data/<name>, to be freed with msp_free(). */
static inline char *
test_data(const char *name, size_t *size)
{
    char path[512], *p;
    msp_error err;

    snprintf(path, sizeof(path), "%s/%s", MSP_TEST_DATA, name);
    if (msp_file_read(&p, size, path, 64 << 20, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return p;
}

static inline msp_status
parse_copy(parse_once *parse, const void *p, size_t size)
{
    int64_t live = msp_alloc_live();
    char *copy = malloc(size > 0 ? size : 1);
    msp_status st;

    memcpy(copy, p, size);
    st = parse(copy, size);
    free(copy);
    assert_int_equal(msp_alloc_live(), live);
    return st;
}

/* No prefix of the file is accepted, unless the format allows what is left out from byte whole on. */
static inline void
assert_every_cut_fails(parse_once *parse, const void *p, size_t size, size_t whole)
{
    assert_int_equal(parse_copy(parse, p, size), MSP_OK);
    for (size_t n = 0; n < whole; n++)
        assert_int_not_equal(parse_copy(parse, p, n), MSP_OK);
}

/* Any single flipped bit gives an error or a valid result; returns how many were errors. */
static inline size_t
flip_every_bit(parse_once *parse, const void *p, size_t size)
{
    char *copy = malloc(size);
    size_t errors = 0;

    memcpy(copy, p, size);
    for (size_t i = 0; i < size * 8; i++) {
        copy[i / 8] ^= (char)(1 << i % 8);
        errors += parse_copy(parse, copy, size) != MSP_OK;
        copy[i / 8] ^= (char)(1 << i % 8);
    }
    free(copy);
    return errors;
}

/* Whichever allocation fails, the parser says so and keeps nothing. */
static inline void
fail_every_allocation(parse_once *parse, const void *p, size_t size)
{
    msp_status st = MSP_E_NOMEM;

    for (int64_t n = 0; st != MSP_OK; n++) {
        assert_true(n < 100000);
        msp_alloc_fail_after(n);
        st = parse_copy(parse, p, size);
        msp_alloc_fail_after(-1);
        if (st != MSP_OK)
            assert_int_equal(st, MSP_E_NOMEM);
    }
}

#endif
