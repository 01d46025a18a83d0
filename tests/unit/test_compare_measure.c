/* test_compare_measure.c - what the six metrics of two tensors show, and what stands there when they cannot be had. */
#include "unit.h"
#include <math.h>
#include "compare/measure.h"

static msp_tensor
tensor(msp_dtype dtype, int ndim, int64_t n, const void *data)
{
    msp_tensor t;

    assert_int_equal(msp_tensor_view(&t, data, dtype, ndim, &n, NULL), MSP_OK);
    return t;
}

/* All six as text, "|" between them, then the message. */
static void
expect(msp_tensor n, msp_tensor b, const char *want)
{
    msp_measurer m = {.threads = 1};
    msp_judged j = {0};
    char got[1024] = "";

    msp_measure_opened(&m, &j, &n, &b);
    for (int i = 0; i < NMETRICS; i++) {
        size_t at = strlen(got);

        if (j.metric[i].word != NULL)
            snprintf(got + at, sizeof(got) - at, "%s|", j.metric[i].word);
        else
            snprintf(got + at, sizeof(got) - at, "%.6g|", j.metric[i].v);
    }
    snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s", j.message.len == 0 ? "" : j.message.p);
    assert_string_equal(got, want);
    msp_buf_release(&j.message);
}

#define F32(...) \
    tensor(MSP_F32, 1, (int64_t)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)), (const float[]){__VA_ARGS__})
#define SCALAR(v) tensor(MSP_F32, 0, 0, (const float[]){v})

#define ZERO_D                                                                                                 \
    "This is type of 0-d tensor, can not calculate 'Cosine', 'EucDist', 'One Thousandth Err Ratio' and 'Five " \
    "Thousandths Err Ratio'. "
#define NAN_ABS "Cannot compare by MaxAbsError, the data contains nan/inf/-inf in dump data."
#define NAN_REL "Cannot compare by MaxRelativeError, the data contains nan/inf/-inf in dump data."

static void
equal_tensors_are_perfect(void **state)
{
    (void)state;
    expect(F32(1, 2, 0), F32(1, 2, 0), "1|0|0|0|1|1|");
    expect(F32(0, 0), F32(0, 0), "1|0|0|0|1|1|");
}

static void
errors_are_those_of_the_definitions(void **state)
{
    (void)state;
    expect(F32(1.002f, 2), F32(1, 2), "1|0.00199997|0.00199997|0.00199997|0.5|1|");
    expect(F32(1, 0), F32(0, 1), "0|1.41421|1|4.5036e+15|0|0|");
}

static void
one_element_has_no_cosine(void **state)
{
    (void)state;
    expect(F32(1), F32(2), "unsupported|1|1|0.5|0|0|This is a 1-d tensor of length 1.");
}

static void
a_side_of_zeroes_has_no_cosine(void **state)
{
    (void)state;
    expect(F32(0, 0), F32(1, 1),
           "Nan|1.41421|1|1|0|0|Cannot compare by Cosine Similarity, All the data is Zero in npu dump data.");
    expect(F32(0.5f, 0.5f), F32(0, 0),
           "Nan|0.707107|0.5|2.2518e+15|0|0|Cannot compare by Cosine Similarity, All the data is Zero in Bench dump "
           "data.");
}

static void
shapes_must_agree(void **state)
{
    static const char want[] = "shape unmatched|shape unmatched|shape unmatched|shape unmatched|shape unmatched|"
                               "shape unmatched|Shape of NPU and bench Tensor do not match. Skipped.";

    (void)state;
    expect(F32(1, 2), F32(1, 2, 3), want);
    expect(SCALAR(1), F32(1), want);
    expect(F32(1), SCALAR(1), want);
}

static void
empty_tensors_are_not_compared(void **state)
{
    (void)state;
    expect(
        tensor(MSP_F32, 1, 0, NULL), tensor(MSP_F32, 1, 0, NULL),
        "unsupported|unsupported|unsupported|unsupported|unsupported|unsupported|This is empty data, can not compare.");
}

static void
nan_and_inf_must_stand_in_the_same_places(void **state)
{
    (void)state;
    expect(F32(NAN, 1, 2), F32(NAN, 1, 2), "1|0|0|0|1|1|");
    expect(F32(INFINITY, 1, 2), F32(-INFINITY, 1, 2), "1|0|0|0|1|1|");
    expect(F32(NAN, 1, 2), F32(1, NAN, 2),
           "N/A|N/A|N/A|N/A|N/A|N/A|The Position of inf or nan in NPU and bench Tensor do not match.");
    expect(F32(INFINITY, 1), F32(NAN, 1),
           "N/A|N/A|N/A|N/A|N/A|N/A|The Position of inf or nan in NPU and bench Tensor do not match.");
}

static void
scalars_have_errors_only(void **state)
{
    static const uint8_t three = 3, five = 5;

    (void)state;
    expect(SCALAR(1.5f), SCALAR(1), "unsupported|unsupported|0.5|0.5|unsupported|unsupported|" ZERO_D);
    expect(SCALAR(NAN), SCALAR(1), "unsupported|unsupported|Nan|Nan|unsupported|unsupported|" ZERO_D NAN_ABS NAN_REL);
    expect(SCALAR(INFINITY), SCALAR(1), "unsupported|unsupported|inf|inf|unsupported|unsupported|" ZERO_D);
    expect(SCALAR(1), SCALAR(INFINITY), "unsupported|unsupported|inf|Nan|unsupported|unsupported|" ZERO_D NAN_REL);
    expect(tensor(MSP_U8, 0, 0, &three), tensor(MSP_U8, 0, 0, &five),
           "unsupported|unsupported|2|0.4|unsupported|unsupported|" ZERO_D);
}

static void
other_types_are_said_but_bfloat16_is_float32(void **state)
{
    static const uint16_t bf16[] = {0x3f80, 0x4000}; /* 1, 2 */
    static const double f64[] = {1, 2};

    (void)state;
    expect(F32(1, 2), tensor(MSP_F64, 1, 2, f64), "1|0|0|0|1|1|Dtype of NPU and bench Tensor do not match.");
    expect(F32(1, 2), tensor(MSP_BF16, 1, 2, bf16), "1|0|0|0|1|1|");
}

static void
what_does_not_fit_the_type_is_infinite(void **state)
{
    (void)state;
    expect(F32(3e38f, 1), F32(-3e38f, 1), "-1|6e+38|6e+38|inf|0.5|0.5|");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_tensors_are_perfect),
        TEST(errors_are_those_of_the_definitions),
        TEST(one_element_has_no_cosine),
        TEST(a_side_of_zeroes_has_no_cosine),
        TEST(shapes_must_agree),
        TEST(empty_tensors_are_not_compared),
        TEST(nan_and_inf_must_stand_in_the_same_places),
        TEST(scalars_have_errors_only),
        TEST(other_types_are_said_but_bfloat16_is_float32),
        TEST(what_does_not_fit_the_type_is_infinite),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
