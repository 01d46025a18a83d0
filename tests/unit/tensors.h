/* tensors.h - what the tests of tensor files share: samples of tests/data/io, their elements, and a parser to damage.
 */
#ifndef MSP_TESTS_TENSORS_H
#define MSP_TESTS_TENSORS_H

#include "hostile.h"
#include "msprobe/tensor.h"

static inline msp_tensor_file *
open_sample(const char *name)
{
    char path[512];
    msp_tensor_file *f;
    msp_error err;

    snprintf(path, sizeof(path), "%s/io/%s", MSP_TEST_DATA, name);
    if (msp_tensor_file_open(&f, path, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return f;
}

static inline const msp_tensor *
find(const msp_tensor_file *f, const char *name)
{
    for (size_t i = 0; i < msp_tensor_file_count(f); i++)
        if (strcmp(msp_tensor_file_name(f, i), name) == 0)
            return msp_tensor_file_at(f, i);
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static inline double
element(const msp_tensor *t, int64_t i)
{
    return msp_dtype_load_f64(t->dtype, msp_tensor_at(t, i));
}

/* The elements, in order, are these. */
static inline void
assert_values(const msp_tensor *t, const double *expected, int64_t n)
{
    assert_int_equal(t->numel, n);
    for (int64_t i = 0; i < n; i++)
        assert_true(element(t, i) == expected[i]);
}

#define ASSERT_VALUES(t, ...) \
    assert_values(t, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

/* For hostile.h: parse a file of any kind, and read the name and both ends of each tensor. */
static inline msp_status
parse_and_touch(const void *p, size_t size)
{
    msp_tensor_file *f;
    msp_error err;
    msp_status st = msp_tensor_file_parse(&f, p, size, &err);

    for (size_t i = 0; f != NULL && i < msp_tensor_file_count(f); i++) {
        const msp_tensor *t = msp_tensor_file_at(f, i);
        volatile double sum = (double)strlen(msp_tensor_file_name(f, i));

        if (t->numel > 0)
            sum += element(t, 0) + element(t, t->numel - 1);
        (void)sum;
    }
    msp_tensor_file_close(f);
    return st;
}

#endif
