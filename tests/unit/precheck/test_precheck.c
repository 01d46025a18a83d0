/* test_precheck.c - one result judged, csv lines, files continued, and two devices compared. */
#include "unit.h"

#include <math.h>
#include "core/alloc.h"
#include "core/file.h"
#include "msprobe/precheck.h"

static msp_precheck_row
measured(const char *api, const float *device, const double *bench, int64_t n)
{
    msp_tensor d, b;
    msp_precheck_row row;

    assert_int_equal(msp_tensor_view(&d, device, MSP_F32, 1, &n, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&b, bench, MSP_F64, 1, &n, NULL), MSP_OK);
    assert_int_equal(msp_precheck_measure(&row, api, &d, &b, NULL), MSP_OK);
    return row;
}

static void
the_name_and_the_type_choose_the_standard(void **state)
{
    (void)state;
    assert_int_equal(msp_precheck_standard_of("linear", MSP_F32), MSP_PRECHECK_ULP);
    assert_int_equal(msp_precheck_standard_of("__rmul__", MSP_F16), MSP_PRECHECK_ABSOLUTE);
    assert_int_equal(msp_precheck_standard_of("type_as", MSP_BF16), MSP_PRECHECK_BINARY);
    assert_int_equal(msp_precheck_standard_of("conv2d", MSP_F32), MSP_PRECHECK_THOUSANDTH);
    assert_int_equal(msp_precheck_standard_of("softmax", MSP_F32), MSP_PRECHECK_BENCHMARK);
    assert_int_equal(msp_precheck_standard_of("linear", MSP_I64), MSP_PRECHECK_BINARY);
    assert_int_equal(msp_precheck_standard_of("softmax", MSP_F8_E5M2), MSP_PRECHECK_ULP);
}

static void
a_result_that_is_nearly_right_passes(void **state)
{
    static const float d[] = {1.0f, 2.0f + 0x1p-22f, 3.0f, -4.0f};
    static const double b[] = {1, 2, 3, -4};
    msp_precheck_row r = measured("linear", d, b, 4);

    (void)state;
    assert_int_equal(r.status, MSP_PRECHECK_PASS);
    assert_true(r.has[MSP_PRECHECK_COSINE] && r.v[MSP_PRECHECK_COSINE] > 0.9999999);
    assert_true(r.v[MSP_PRECHECK_ULP_MAX] == 1.0); /* the unit of 2 is 2^-22 */
    assert_false(r.has[MSP_PRECHECK_THOUSANDTH_SHARE]);
    assert_string_equal(r.shape, "(4,)");
}

static void
a_large_error_is_an_error(void **state)
{
    static const float d[] = {100, 200, 300, 401};
    static const double b[] = {100, 200, 300, 400};
    msp_precheck_row r = measured("softmax", d, b, 4);

    (void)state;
    assert_int_equal(r.status, MSP_PRECHECK_ERROR); /* three of four within 0.1 % are not 99.9 % */
    assert_true(r.v[MSP_PRECHECK_THOUSANDTH_SHARE] == 0.75);
    assert_true(r.v[MSP_PRECHECK_MAX_ABS] == 1.0);
    assert_true(fabs(r.v[MSP_PRECHECK_MAX_REL] - 0.0025) < 1e-12);
}

static void
what_is_not_finite_on_one_side_is_an_error(void **state)
{
    static const float d[] = {1, NAN, 3, 4};
    static const double b[] = {1, 2, 3, 4};
    msp_precheck_row r = measured("softmax", d, b, 4);

    (void)state;
    assert_int_equal(r.status, MSP_PRECHECK_ERROR);
    assert_non_null(strstr(r.message, "NaN or inf on one side"));
}

static void
integers_must_be_equal(void **state)
{
    static const int64_t d[] = {1, 2, 3, 5}, e[] = {1, 2, 3, 4};
    int64_t n = 4;
    msp_tensor x, y;
    msp_precheck_row r;

    (void)state;
    assert_int_equal(msp_tensor_view(&x, d, MSP_I64, 1, &n, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&y, e, MSP_I64, 1, &n, NULL), MSP_OK);
    assert_int_equal(msp_precheck_measure(&r, "argmax", &x, &y, NULL), MSP_OK);
    assert_int_equal(r.status, MSP_PRECHECK_ERROR);
    assert_true(r.v[MSP_PRECHECK_ERROR_RATE] == 0.25);
    assert_int_equal(msp_precheck_measure(&r, "argmax", &x, &x, NULL), MSP_OK);
    assert_int_equal(r.status, MSP_PRECHECK_PASS);
}

static void
integers_beyond_a_doubles_precision_are_compared_to_the_last_bit(void **state)
{
    static const int64_t d[] = {INT64_C(9007199254740993), -1}, e[] = {INT64_C(9007199254740992), -1};
    int64_t n = 2;
    msp_tensor x, y;
    msp_precheck_row r;

    (void)state;
    assert_int_equal(msp_tensor_view(&x, d, MSP_I64, 1, &n, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&y, e, MSP_I64, 1, &n, NULL), MSP_OK);
    assert_int_equal(msp_precheck_measure(&r, "argmax", &x, &y, NULL), MSP_OK);
    assert_int_equal(r.status, MSP_PRECHECK_ERROR);
    assert_true(r.v[MSP_PRECHECK_ERROR_RATE] == 0.5);
    assert_string_equal(r.message, "Compare algorithm is not supported for int64 data. Only judged by Error Rate.\n");
}

static void
a_standard_that_has_no_bounds_for_a_type_gives_no_numbers(void **state)
{
    static const double d[] = {1, 2, 3, 4};
    int64_t n = 4;
    msp_tensor x;
    msp_precheck_row r;

    (void)state;
    assert_int_equal(msp_tensor_view(&x, d, MSP_F64, 1, &n, NULL), MSP_OK);
    assert_int_equal(msp_precheck_measure(&r, "add", &x, &x, NULL), MSP_OK);
    assert_int_equal(r.status, MSP_PRECHECK_PASS);
    for (int i = MSP_PRECHECK_HUNDREDTH; i < MSP_PRECHECK_NUMBERS; i++)
        assert_false(r.has[i]);
    assert_true(r.has[MSP_PRECHECK_COSINE] && r.has[MSP_PRECHECK_MAX_ABS]);
    assert_string_equal(r.message, "The data type torch.float64 is not supported for new precision standard.\n"
                                   "Max abs error is less than 0.001, consider as pass, skip other check and set to "
                                   "SPACE.\n");
}

static void
a_float64_beyond_float32_is_a_number_like_others(void **state)
{
    static const double d[] = {1e300, -1e300};
    int64_t n = 2;
    msp_tensor x;
    msp_precheck_row r;

    (void)state;
    assert_int_equal(msp_tensor_view(&x, d, MSP_F64, 1, &n, NULL), MSP_OK);
    assert_int_equal(msp_precheck_measure(&r, "mul", &x, &x, NULL), MSP_OK);
    assert_int_equal(r.status, MSP_PRECHECK_PASS);
}

static void
shapes_that_differ_are_an_error_with_the_reason(void **state)
{
    static const float v[6] = {0};
    int64_t a[] = {2, 3}, b[] = {3, 2};
    msp_tensor x, y;
    msp_precheck_row r;

    (void)state;
    assert_int_equal(msp_tensor_view(&x, v, MSP_F32, 2, a, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&y, v, MSP_F32, 2, b, NULL), MSP_OK);
    assert_int_equal(msp_precheck_measure(&r, "relu", &x, &y, NULL), MSP_OK);
    assert_int_equal(r.status, MSP_PRECHECK_ERROR);
    assert_string_equal(r.message, "The shapes differ.\n");
    assert_string_equal(r.shape, "(2, 3)");
}

static void
a_line_has_every_column_and_one_space_where_nothing_is(void **state)
{
    static const float d[] = {1, 2};
    static const double b[] = {1, 2};
    msp_precheck_row r = measured("relu", d, b, 2);
    char line[2048];

    (void)state;
    assert_true(msp_precheck_details_line(line, sizeof(line), "Functional.relu.0.forward.output.0", &r) < sizeof(line));
    assert_string_equal(line, "Functional.relu.0.forward.output.0,torch.float64,torch.float32,\"(2,)\","
                              "1.00000000000000,0.00000000000000, , , ,0.00000000000000, , , , , , , , , , , ,pass,"
                              "\"\nMax abs error is less than 0.001, consider as pass, skip other check and set to "
                              "SPACE.\n\"\r\n");
    assert_true(msp_precheck_result_line(line, sizeof(line), "a.b.0", MSP_PRECHECK_PASS, NULL, "=1,2") < sizeof(line));
    assert_string_equal(line, "a.b.0,pass, ,\"'=1,2\"\r\n");
}

static void
count_name(const char *name, size_t len, void *payload)
{
    assert_true(len > 0 && name[0] != '\0');
    ++*(int *)payload;
}

static void
a_file_that_was_cut_off_is_continued_where_it_is_whole(void **state)
{
    char text[4096];
    const char *result, *details;
    static const char last[] = "output.1.0,a,b,\"(1,)\"\r\n";
    char *left;
    size_t size;
    int names = 0;
    msp_precheck_summary s = {0};

    (void)state;
    snprintf(text, sizeof(text), "%sTorch.add.0,pass, ,\r\nTorch.add.1,err", msp_precheck_result_header());
    result = write_file("accuracy_checking_result_1.csv", text, strlen(text));
    snprintf(text, sizeof(text),
             "%sTorch.add.0.forward.output.0,a,b,\"(1,)\"\r\nTorch.add.0.forward.output.1.0,a,b,\"(1,)\"\r\n"
             "Torch.add.1.forward.output.0,a,b,\"(1,)\"\r\nTorch.ad",
             msp_precheck_details_header());
    details = write_file("accuracy_checking_details_1.csv", text, strlen(text));
    for (int i = 0; i < 2; i++) { /* what was cut once stays whole */
        names = 0;
        assert_int_equal(msp_precheck_resume(result, details, count_name, &names, NULL), MSP_OK);
        assert_int_equal(names, 1);
    }
    assert_int_equal(msp_precheck_summarise(&s, result, details, NULL), MSP_OK);
    assert_int_equal(s.apis, 1);
    assert_int_equal(s.count[MSP_PRECHECK_PASS], 1);
    assert_int_equal(msp_file_read(&left, &size, details, 1 << 20, NULL), MSP_OK);
    assert_true(size > strlen(last));
    assert_memory_equal(left + size - strlen(last), last, strlen(last)); /* a result within a result */
    msp_free(left);
}

static void
what_may_be_noise_is_said_and_comes_last_among_the_worst(void **state)
{
    static const float noise[] = {1e-9f, -1e-9f, 2e-9f, 0}, wrong[] = {100, 200, 300, 401};
    static const double zeros[] = {1e-17, 1e-17, -2e-17, 0}, right[] = {100, 200, 300, 400};
    const msp_precheck_row rows[] = {measured("sum", noise, zeros, 4), measured("sum", wrong, right, 4)};
    char text[4096];
    size_t len = (size_t)snprintf(text, sizeof(text), "%s", msp_precheck_details_header());
    const char *result, *details;
    msp_precheck_summary s = {0};

    (void)state;
    assert_int_equal(rows[0].status, MSP_PRECHECK_ERROR);
    assert_non_null(strstr(rows[0].message, "The largest error is 2e-09: where exact results are 0"));
    assert_null(strstr(rows[1].message, "noise"));
    len += msp_precheck_details_line(text + len, sizeof(text) - len, "Torch.sum.0.backward.output.0", &rows[0]);
    len += msp_precheck_details_line(text + len, sizeof(text) - len, "Torch.sum.1.forward.output.0", &rows[1]);
    details = write_file("noise_details.csv", text, len);
    len = (size_t)snprintf(text, sizeof(text), "%sTorch.sum.0,pass,error,\r\nTorch.sum.1,error, ,\r\n",
                           msp_precheck_result_header());
    result = write_file("noise_result.csv", text, len);
    assert_int_equal(msp_precheck_summarise(&s, result, details, NULL), MSP_OK);
    assert_int_equal(s.nworst, 2);
    assert_string_equal(s.worst[0].name, "Torch.sum.1.forward.output.0");
}

static void
a_direction_that_failed_is_counted_though_the_other_one_passed(void **state)
{
    static const char more[] =
        "Torch.add.0,pass,SKIP,FAILED: backward: cut\r\nTorch.add.1,pass,SKIP,backward: empty\r\n";
    char text[4096];
    size_t len = (size_t)snprintf(text, sizeof(text), "%s%s", msp_precheck_result_header(), more);
    const char *result = write_file("failed_result.csv", text, len);
    msp_precheck_summary s = {0};

    (void)state;
    len = (size_t)snprintf(text, sizeof(text), "%s", msp_precheck_details_header());
    assert_int_equal(msp_precheck_summarise(&s, result, write_file("failed_details.csv", text, len), NULL), MSP_OK);
    assert_int_equal(s.count[MSP_PRECHECK_PASS], 2);
    assert_int_equal(s.failed, 1);
    assert_string_equal(s.skipped, "Torch.add.0: FAILED: backward: cut");
}

static void
something_else_is_not_continued(void **state)
{
    const char *path = write_file("other.csv", "x,y\n1,2\n", 8);
    int names = 0;
    msp_error err;

    (void)state;
    assert_int_equal(msp_precheck_resume(path, path, count_name, &names, &err), MSP_E_FORMAT);
    assert_int_equal(names, 0);
}

static const char *
write_details(const char *name, const float *d)
{
    static const double b[] = {1, 2, 3, 4};
    msp_precheck_row r = measured("softmax", d, b, 4);
    char text[4096];
    size_t len = (size_t)snprintf(text, sizeof(text), "%s", msp_precheck_details_header());

    len += msp_precheck_details_line(text + len, sizeof(text) - len, "Functional.softmax.0.forward.output.0", &r);
    return write_file(name, text, len);
}

/* One row, with these cells from the fourth number on. */
static msp_precheck_status
judged(const char *api, const char *npu_cells, const char *gpu_cells)
{
    const char *paths[2], *cells[2] = {npu_cells, gpu_cells};
    msp_precheck_versus v;
    char text[4096];
    msp_error err;

    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text), "%sFunctional.%s.0.forward.output.0,torch.float64,torch.float32,\"(4,)\",%s\r\n",
                 msp_precheck_details_header(), api, cells[i]);
        paths[i] = write_file(i == 0 ? "npu.csv" : "gpu.csv", text, strlen(text));
    }
    assert_int_equal(msp_precheck_compare(&v, paths[0], paths[1], scratch_dir(), "20260101000009", &err), MSP_OK);
    return v.count[MSP_PRECHECK_ERROR] > 0  ? MSP_PRECHECK_ERROR
           : v.count[MSP_PRECHECK_PASS] > 0 ? MSP_PRECHECK_PASS
                                            : MSP_PRECHECK_SKIP;
}

static void
what_was_not_measured_is_no_pass(void **state)
{
    static const char nothing[] = " , , , , , , , , , , , , , , , , ,error,x";
    static const char skipped[] = " , , , , , , , , , , , , , , , , ,SKIP,x";
    static const char one_sided[] = " , , , , , , , , , , ,0.25, , ,0,0,0,error,x";
    static const char units[] = " , , , , , , , , , , , , , ,0,0,0,pass,x";
    static const char infinite[] = " , , , , , ,0,inf,0,0,0, , , , , , ,error,x";
    static const char finite[] = " , , , , , ,0,0.1,0,0,0, , , , , , ,pass,x";

    (void)state;
    assert_int_equal(judged("linear", nothing, units), MSP_PRECHECK_ERROR);
    assert_int_equal(judged("linear", skipped, units), MSP_PRECHECK_SKIP);
    assert_int_equal(judged("linear", one_sided, units), MSP_PRECHECK_ERROR);
    assert_int_equal(judged("linear", units, units), MSP_PRECHECK_PASS);
    assert_int_equal(judged("softmax", infinite, finite), MSP_PRECHECK_ERROR);
    assert_int_equal(judged("softmax", finite, infinite), MSP_PRECHECK_ERROR);
    assert_int_equal(judged("softmax", infinite, infinite), MSP_PRECHECK_PASS);
}

static void
a_device_is_judged_by_the_other_ones_error(void **state)
{
    static const float good[] = {1.001f, 2.001f, 3.001f, 4.001f}, bad[] = {1.2f, 2.2f, 3.2f, 4.2f};
    static const float exact[] = {1, 2, 3, 4};
    const char *n = write_details("npu.csv", bad), *g = write_details("gpu.csv", good);
    const char *e = write_details("exact.csv", exact);
    msp_precheck_versus v;
    msp_error err;

    (void)state;
    assert_int_equal(msp_precheck_compare(&v, n, g, scratch_dir(), "20260101000000", &err), MSP_OK);
    assert_int_equal(v.apis, 1);
    assert_int_equal(v.count[MSP_PRECHECK_ERROR], 1);
    assert_int_equal(msp_precheck_compare(&v, e, g, scratch_dir(), "20260101000001", &err), MSP_OK);
    assert_int_equal(v.count[MSP_PRECHECK_PASS], 1);
    assert_int_equal(msp_precheck_compare(&v, n, write_file("x.csv", "a,b\n", 4), scratch_dir(), "1", &err),
                     MSP_E_FORMAT);
    assert_null(strstr(strstr(err.message, "x.csv") + 1, "x.csv")); /* who opened it says its name, once */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_name_and_the_type_choose_the_standard),
        TEST(a_result_that_is_nearly_right_passes),
        TEST(a_large_error_is_an_error),
        TEST(what_is_not_finite_on_one_side_is_an_error),
        TEST(integers_must_be_equal),
        TEST(integers_beyond_a_doubles_precision_are_compared_to_the_last_bit),
        TEST(a_standard_that_has_no_bounds_for_a_type_gives_no_numbers),
        TEST(a_float64_beyond_float32_is_a_number_like_others),
        TEST(shapes_that_differ_are_an_error_with_the_reason),
        TEST(a_line_has_every_column_and_one_space_where_nothing_is),
        TEST(a_file_that_was_cut_off_is_continued_where_it_is_whole),
        TEST(what_may_be_noise_is_said_and_comes_last_among_the_worst),
        TEST(a_direction_that_failed_is_counted_though_the_other_one_passed),
        TEST(something_else_is_not_continued),
        TEST(what_was_not_measured_is_no_pass),
        TEST(a_device_is_judged_by_the_other_ones_error),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
