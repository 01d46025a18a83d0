/* test_measure.c - what the six metrics of two tensors show, and what stands there when they cannot be had. */
#include "unit.h"
#include <fcntl.h>
#include <math.h>
#include <unistd.h>
#include "compare/judge/ahead.h"
#include "rows_of.h"

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
    static const uint16_t a = 0x454d, b = 0x399a; /* 5.30078125 and 0.7001953125 */

    (void)state;
    expect(tensor(MSP_F16, 0, 0, &a), tensor(MSP_F16, 0, 0, &b), /* subtracted in 16 bits: 4.6005859375 has no place */
           "unsupported|unsupported|4.60156|6.57031|unsupported|unsupported|" ZERO_D);
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

#define FILED(file, shape) \
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [" shape "], \"data_name\": \"" file "\"}"

/* What is left of the bytes of a file named like this, read ahead by the name of each row; "-" for those that are not.
 */
static void
files_of_small_tensors_are_read_ahead(void **state)
{
    test_rows t = rows_of("\"op\": {\"output\": [" FILED("a.npy", "4") ", " FILED("b.npy", "4") ", " FILED(
        "a.npy", "4000") ", " FILED("../a.npy", "4") ", " FILED("none.npy", "4") ", " FILED("a.npy", "") "]}");
    static const char *const want[] = {"aaaa", "bb", "-", "-", "-", "aaaa"};
    static _Alignas(64) char room[MSP_AHEAD_ROOM];
    const msp_rows *sides[2] = {&t.rows, &t.rows};
    msp_measurer m = {.threads = 1};
    msp_judged j[6] = {0};

    (void)state;
    write_file("a.npy", "aaaa", 4);
    write_file("b.npy", "bb", 2);
    m.fds[0] = m.fds[1] = open(scratch_dir(), O_RDONLY | O_CLOEXEC);
    assert_int_equal(t.rows.count, 6);
    for (int i = 0; i < 6; i++)
        j[i].n = j[i].b = &t.rows.rows[i];
    j[1].b = j[0].b;
    assert_int_equal(msp_ahead_read(room, &m, sides, j, 6), 6);
    for (int i = 0; i < 6; i++) {
        msp_str got = j[i].ahead[0].len == 0 ? MSP_STR("-") : j[i].ahead[0];

        assert_true(msp_str_eq(got, msp_str_of(want[i])));
        assert_true(i == 1 || j[i].ahead[1].len == j[i].ahead[0].len);
    }
    assert_true(msp_str_eq(j[1].ahead[1], MSP_STR("aaaa"))); /* each side its own */
    close(m.fds[0]);
    rows_free(&t);
}

static void
reading_ahead_ends_with_its_room(void **state)
{
    test_rows t = rows_of("\"op\": {\"output\": [" FILED("a.npy", "2000") "]}");
    static _Alignas(64) char room[MSP_AHEAD_ROOM];
    const msp_rows *sides[2] = {&t.rows, &t.rows};
    msp_measurer m = {.fds = {-1, -1}, .threads = 1};
    msp_judged j[100] = {0};

    (void)state;
    for (int i = 0; i < 100; i++)
        j[i].n = j[i].b = &t.rows.rows[0];
    m.fds[0] = m.fds[1] = open(scratch_dir(), O_RDONLY | O_CLOEXEC);
    assert_in_range(msp_ahead_read(room, &m, sides, j, 100), 2, MSP_AHEAD_ROOM / 2 / 8000);
    m.open_to_all[0] = m.open_to_all[1] = true; /* nothing is read: any number of rows is settled at once */
    assert_in_range(msp_ahead_read(room, &m, sides, j, 100), MSP_AHEAD_ROOM / 2 / 8000 + 1, 100);
    close(m.fds[0]);
    rows_free(&t);
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
        TEST(files_of_small_tensors_are_read_ahead),
        TEST(reading_ahead_ends_with_its_room),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
