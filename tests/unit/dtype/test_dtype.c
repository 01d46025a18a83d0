/* test_dtype.c - promises of msprobe/dtype.h: names, sizes, single elements. */
#include "unit.h"
#include <math.h>
#include "msprobe/dtype.h"

static void
check_name(const char *name, msp_dtype want)
{
    char copy[64]; /* not terminated where it ends, so that reading past it is seen by the sanitizer */
    size_t n = strlen(name);

    memset(copy, 'x', sizeof(copy));
    memcpy(copy, name, n);
    if (msp_dtype_parse(copy, n) != want)
        fail_msg("%s is taken for %s", name, msp_dtype_torch_name(msp_dtype_parse(copy, n)));
}

static void
every_type_has_a_size_a_class_and_names_that_parse_back(void **state)
{
    static const unsigned char sizes[MSP_DTYPE_COUNT] = {0, 8, 4, 2, 2, 1, 1, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 8, 16};

    (void)state;
    for (int t = 0; t < MSP_DTYPE_COUNT; t++) {
        const char *ms = msp_dtype_mindspore_name((msp_dtype)t);

        assert_int_equal(msp_dtype_size((msp_dtype)t), sizes[t]);
        check_name(msp_dtype_torch_name((msp_dtype)t), (msp_dtype)t);
        if (t != MSP_DTYPE_NONE)
            check_name(msp_dtype_torch_name((msp_dtype)t) + 6, (msp_dtype)t);
        if (ms != NULL)
            check_name(ms, (msp_dtype)t);
    }
    assert_int_equal(msp_dtype_class_of(MSP_BF16), MSP_CLASS_FLOAT);
    assert_int_equal(msp_dtype_class_of(MSP_U64), MSP_CLASS_INT);
    assert_int_equal(msp_dtype_class_of(MSP_BOOL), MSP_CLASS_BOOL);
    assert_int_equal(msp_dtype_class_of(MSP_C64), MSP_CLASS_COMPLEX);
    assert_true(msp_dtype_is_signed_int(MSP_I8) && msp_dtype_is_signed_int(MSP_I64));
    assert_false(msp_dtype_is_signed_int(MSP_U8) || msp_dtype_is_signed_int(MSP_F32) ||
                 msp_dtype_is_signed_int(MSP_BOOL));
}

static void
a_number_that_is_no_type_is_harmless(void **state)
{
    (void)state;
    assert_int_equal(msp_dtype_size((msp_dtype)MSP_DTYPE_COUNT), 0);
    assert_int_equal(msp_dtype_size((msp_dtype)-1), 0);
    assert_int_equal(msp_dtype_class_of((msp_dtype)99), MSP_CLASS_NONE);
    assert_non_null(msp_dtype_torch_name((msp_dtype)99));
    assert_true(isnan(msp_dtype_load_f64(MSP_DTYPE_NONE, "")));
}

static void
names_of_every_framework_are_recognised(void **state)
{
    (void)state;
    check_name("torch.float", MSP_F32);
    check_name("torch.double", MSP_F64);
    check_name("torch.long", MSP_I64);
    check_name("half", MSP_F16);
    check_name("torch.HalfTensor", MSP_F16);
    check_name("torch.cuda.HalfTensor", MSP_F16);
    check_name("torch.npu.BFloat16Tensor", MSP_BF16);
    check_name("torch.FloatStorage", MSP_F32);
    check_name("torch.cuda.LongStorage", MSP_I64);
    check_name("torch.ComplexFloatStorage", MSP_C64);
    check_name("BFloat16Storage", MSP_BF16);
    check_name("mindspore.float16", MSP_F16);
    check_name("UInt16", MSP_U16);
    check_name("Complex128", MSP_C128);
    check_name("F8_E4M3", MSP_F8_E4M3FN);
    check_name("BF16", MSP_BF16);
    check_name("numpy.float64", MSP_F64);
}

static void
case_tells_numpy_from_safetensors(void **state)
{
    (void)state;
    check_name("i8", MSP_I64);
    check_name("I8", MSP_I8);
    check_name("<i8", MSP_I64);
    check_name("<u8", MSP_U64);
    check_name("U8", MSP_U8);
    check_name("<I8", MSP_DTYPE_NONE);
    check_name("<F32", MSP_DTYPE_NONE);
}

static void
numpy_type_strings_in_our_byte_order_are_recognised(void **state)
{
    (void)state;
    check_name("<f4", MSP_F32);
    check_name("=f2", MSP_F16);
    check_name("|b1", MSP_BOOL);
    check_name("|?", MSP_BOOL);
    check_name("|u1", MSP_U8);
    check_name(">i1", MSP_I8);
    check_name("<c16", MSP_C128);
    check_name(">f4", MSP_DTYPE_NONE);
    check_name("<float32", MSP_DTYPE_NONE);
    check_name("<", MSP_DTYPE_NONE);
    check_name("<f", MSP_DTYPE_NONE);
}

static void
unknown_names_are_none(void **state)
{
    static const char *const names[] = {"",
                                        "torch.",
                                        "torch",
                                        "Tensor",
                                        "torch.Tensor",
                                        "float33",
                                        "torch.qint8",
                                        "f3",
                                        "object",
                                        "torch.floaty",
                                        "FLOAT32",
                                        "str",
                                        "<V2",
                                        "float ",
                                        "Int4",
                                        "hifloat8",
                                        "torch_npu.HiFloat8Tensor",
                                        "F8_E8M0"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_name(names[i], MSP_DTYPE_NONE);
    assert_int_equal(msp_dtype_parse("float32\0", 8), MSP_DTYPE_NONE);
    assert_int_equal(msp_dtype_parse(NULL, 0), MSP_DTYPE_NONE);
}

static void
integers_load_rounded_to_nearest(void **state)
{
    int64_t big = (INT64_C(1) << 53) + 1, less = INT64_MIN;
    uint64_t most = UINT64_MAX;
    uint8_t b = 2;
    int8_t small = -128;
    uint16_t u16 = 65535;
    uint32_t u32 = UINT32_MAX;

    (void)state;
    assert_true(msp_dtype_load_f64(MSP_I64, &big) == 9007199254740992.0);
    assert_true(msp_dtype_load_f64(MSP_I64, &less) == -9223372036854775808.0);
    assert_true(msp_dtype_load_f64(MSP_U64, &most) == 18446744073709551616.0);
    assert_true(msp_dtype_load_f64(MSP_BOOL, &b) == 1);
    assert_true(msp_dtype_load_f64(MSP_I8, &small) == -128);
    assert_true(msp_dtype_load_f64(MSP_U16, &u16) == 65535);
    assert_true(msp_dtype_load_f64(MSP_U32, &u32) == 4294967295.0);
}

static void
elements_need_no_alignment(void **state)
{
    unsigned char raw[17];
    double v = 0.1;

    (void)state;
    memcpy(raw + 1, &v, 8);
    memcpy(raw + 9, &v, 8);
    assert_true(msp_dtype_load_f64(MSP_F64, raw + 1) == 0.1);
    assert_true(msp_dtype_load_f64(MSP_C128, raw + 1) == 0.1);
}

static void
check_format(msp_dtype t, const void *p, const char *want)
{
    char buf[80];
    size_t n = msp_dtype_format(buf, t, p);

    assert_string_equal(buf, want);
    assert_int_equal(n, strlen(want));
}

static void
elements_print_as_python_prints_them(void **state)
{
    float f = 0.1f, c[2] = {1, 2}, im[2] = {0, -1.5f}, negative[2] = {-0.0f, 0}, odd[2] = {NAN, -INFINITY};
    double d = 1e22, wide[2] = {-2.2250738585072014e-308, -2.2250738585072014e-308};
    uint16_t half = 0x3555;
    int8_t i = -3;
    int64_t least = INT64_MIN;
    uint64_t u = UINT64_MAX;
    uint8_t yes = 1, no = 0, e4m3 = 0x7e;

    (void)state;
    check_format(MSP_F32, &f, "0.10000000149011612");
    check_format(MSP_F64, &d, "1e+22");
    check_format(MSP_F16, &half, "0.333251953125");
    check_format(MSP_F8_E4M3FN, &e4m3, "448.0");
    check_format(MSP_I8, &i, "-3");
    check_format(MSP_I64, &least, "-9223372036854775808");
    check_format(MSP_U64, &u, "18446744073709551615");
    check_format(MSP_BOOL, &yes, "True");
    check_format(MSP_BOOL, &no, "False");
    check_format(MSP_C64, c, "(1+2j)");
    check_format(MSP_C64, im, "-1.5j");
    check_format(MSP_C64, negative, "(-0+0j)");
    check_format(MSP_C64, odd, "(nan-infj)");
    check_format(MSP_C128, wide, "(-2.2250738585072014e-308-2.2250738585072014e-308j)");
    check_format(MSP_DTYPE_NONE, &d, "");
}

static void
addition_rounds_to_the_type(void **state)
{
    uint16_t half = 0x6800, one = 0x3c00, bf = 0x4380, bf_one = 0x3f80; /* 2048, 1; 256, 1 */
    float c[2] = {1, 2}, d[2] = {0.5f, -4};
    double x = 1;

    (void)state;
    assert_true(msp_dtype_add(MSP_F16, &half, &one));
    assert_int_equal(half, 0x6800); /* 2049 is no float16: ties to even */
    assert_true(msp_dtype_add(MSP_BF16, &bf, &bf_one));
    assert_int_equal(bf, 0x4380);
    assert_true(msp_dtype_add(MSP_C64, c, d));
    assert_true(c[0] == 1.5f && c[1] == -2.0f);
    assert_true(msp_dtype_add(MSP_F64, &x, &x));
    assert_true(x == 2);
    assert_false(msp_dtype_add(MSP_I32, &x, &x));
    assert_true(x == 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(addition_rounds_to_the_type),
        TEST(every_type_has_a_size_a_class_and_names_that_parse_back),
        TEST(a_number_that_is_no_type_is_harmless),
        TEST(names_of_every_framework_are_recognised),
        TEST(case_tells_numpy_from_safetensors),
        TEST(numpy_type_strings_in_our_byte_order_are_recognised),
        TEST(unknown_names_are_none),
        TEST(integers_load_rounded_to_nearest),
        TEST(elements_need_no_alignment),
        TEST(elements_print_as_python_prints_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
