/* test_npy.c - promises of msprobe/tensor.h about .npy files. The samples were written by NumPy (make.py beside them).
 */
#include "tensors.h"
#include "io/bytes.h"
#include "io/tensor_file.h"

static void
open_npy(msp_tensor *t, const char *name)
{
    char path[512];
    msp_error err;

    snprintf(path, sizeof(path), "%s/io/%s", MSP_TEST_DATA, name);
    if (msp_npy_open(t, path, &err) != MSP_OK)
        fail_msg("%s", err.message);
}

static void
every_element_type_is_read(void **state)
{
    int seen = 0;

    (void)state;
    for (int d = 1; d < MSP_DTYPE_COUNT; d++) {
        const char *type = msp_dtype_torch_name((msp_dtype)d) + strlen("torch.");
        char name[64];
        msp_tensor t;

        if (strncmp(type, "float8", 6) == 0)
            continue;
        snprintf(name, sizeof(name), "%s.npy", type);
        open_npy(&t, name);
        assert_int_equal(t.dtype, d);
        assert_values(&t, (const double[]){0, 1, d == MSP_BOOL ? 1 : 2}, 3);
        msp_tensor_release(&t);
        seen++;
    }
    assert_int_equal(seen, 15);
}

static void
every_order_and_version_gives_the_same_matrix(void **state)
{
    const char *names[] = {"matrix.npy", "fortran.npy", "big_endian.npy", "version2.npy", "version3.npy"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int64_t live = msp_alloc_live();
        msp_tensor t;

        open_npy(&t, names[i]);
        assert_int_equal(t.ndim, 2);
        assert_int_equal(t.shape[0], 2);
        assert_int_equal(t.shape[1], 3);
        assert_values(&t, (const double[]){0, 1, 2, 3, 4, 5}, 6);
        assert_int_equal(msp_tensor_is_contiguous(&t), i != 1);
        msp_tensor_release(&t);
        assert_int_equal(msp_alloc_live(), live);
    }
}

static void
scalars_empty_and_complex_arrays_are_read(void **state)
{
    msp_tensor t;

    (void)state;
    open_npy(&t, "scalar.npy");
    assert_int_equal(t.ndim, 0);
    assert_values(&t, (const double[]){-2.5}, 1);
    msp_tensor_release(&t);
    open_npy(&t, "empty.npy");
    assert_int_equal(t.numel, 0);
    assert_int_equal(t.shape[1], 3);
    assert_null(t.data);
    msp_tensor_release(&t);
    open_npy(&t, "big_endian_complex.npy");
    assert_values(&t, (const double[]){1}, 1);
    assert_true(((const double *)t.data)[1] == 2);
    msp_tensor_release(&t);
}

/* A version 1 file with this header text and n zero bytes of data. */
static msp_status
open_made(msp_tensor *t, const char *header, size_t n, msp_error *err)
{
    char bytes[4096] = "\x93NUMPY\1";
    size_t len = strlen(header);

    store_u16(bytes + 8, (uint16_t)len);
    memcpy(bytes + 10, header, len);
    return msp_npy_open(t, write_file("made.npy", bytes, 10 + len + n), err);
}

static void
assert_refused(const char *header, size_t n, msp_status status, const char *message)
{
    msp_error err;
    msp_tensor t;
    const char *at;

    assert_int_equal(open_made(&t, header, n, &err), status);
    at = strstr(err.message, "made.npy: ");
    assert_non_null(at);
    assert_string_equal(at + strlen("made.npy: "), message);
    assert_null(t.data);
}

static void
headers_may_be_written_in_any_way_python_allows(void **state)
{
    const char *headers[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
        "{\"shape\":(2,3,),\"descr\":\"<f4\",\"fortran_order\":False}",
        "  { 'fortran_order' : False , 'descr' : '=f4' , 'shape' : ( 2L , 3L ) }   ",
        "{'descr': '|f4', 'fortran_order': False, 'shape': (2, 3), }\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        msp_error err;
        msp_tensor t;

        if (open_made(&t, headers[i], 24, &err) != MSP_OK)
            fail_msg("%s", err.message);
        assert_int_equal(t.numel, 6);
        msp_tensor_release(&t);
    }
}

static void
headers_that_lie_are_refused(void **state)
{
    (void)state;
    assert_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 23, MSP_E_FORMAT,
                   "the header promises 24 bytes of data from byte 69 on, 23 are there");
    assert_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }", 0, MSP_E_FORMAT,
                   "the header's shape has more elements than any memory");
    assert_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,), }", 0, MSP_E_FORMAT,
                   "byte 61: expected a size in the header");
    assert_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 0, MSP_E_FORMAT,
                   "byte 61: expected a size in the header");
    assert_refused("{'descr': '<f4', 'fortran_order': False}", 0, MSP_E_FORMAT, "the header lacks 'shape'");
    assert_refused("{'descr': '<f4', 'shape': ()}", 0, MSP_E_FORMAT, "the header lacks 'fortran_order'");
    assert_refused("{}", 0, MSP_E_FORMAT, "the header lacks 'descr'");
    assert_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'shape': ()}", 0, MSP_E_FORMAT,
                   "byte 64: an unknown or repeated key in the header");
    assert_refused("{'descr': '<f4', 'descr': '<f8'}", 0, MSP_E_FORMAT,
                   "byte 27: an unknown or repeated key in the header");
    assert_refused("{'x': 1}", 0, MSP_E_FORMAT, "byte 11: an unknown or repeated key in the header");
    assert_refused("{'descr': '<f4'", 0, MSP_E_FORMAT, "byte 25: expected '}' in the header");
    assert_refused("{'descr': '<f4", 0, MSP_E_FORMAT, "byte 20: a string without an end");
    assert_refused("[]", 0, MSP_E_FORMAT, "byte 10: expected '{' in the header");
    assert_refused("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", 0, MSP_E_FORMAT,
                   "byte 44: expected True or False in the header");
    assert_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (), } x", 0, MSP_E_FORMAT,
                   "byte 66: something follows the dict in the header");
}

static void
a_cut_header_is_named_with_its_byte(void **state)
{
    msp_error err;
    msp_tensor t;

    (void)state;
    assert_int_equal(msp_npy_open(&t, write_file("cut.npy", "\x93NUMPY\x01", 7), &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "cut.npy: header cut short at byte 7"));
    assert_int_equal(msp_npy_open(&t, write_file("cut.npy", "\x93NUMPY\x02\0\0\0\0", 11), &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "cut.npy: header cut short at byte 11"));
    assert_int_equal(msp_npy_open(&t, write_file("cut.npy", "\x93NUMPY\x01\0\377\377", 10), &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "cut.npy: header of 65535 bytes cut short at byte 10"));
    assert_int_equal(msp_npy_open(&t, write_file("cut.npy", "\x93NUMPY\x04\0\0\0\0\0", 12), &err), MSP_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "cut.npy: .npy version 4.0; 1.0 to 3.0 are read"));
    assert_int_equal(msp_npy_open(&t, write_file("cut.npy", "", 0), &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "cut.npy: not a .npy file"));
    assert_int_equal(msp_tensor_open(&t, write_file("cut.npy", "", 0), &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "cut.npy: the file is empty"));
    assert_int_equal(msp_npy_open(&t, scratch_dir(), &err), MSP_E_IO);
    assert_non_null(strstr(err.message, "is a directory"));
}

static void
types_that_are_no_numbers_are_named(void **state)
{
    (void)state;
    assert_refused("{'descr': '|O', 'fortran_order': False, 'shape': (), }", 8, MSP_E_UNSUPPORTED,
                   "byte 20: the elements ('|O') are objects, which would have to be unpickled");
    assert_refused("{'descr': '<V2', 'fortran_order': False, 'shape': (), }", 8, MSP_E_UNSUPPORTED,
                   "byte 20: the elements ('<V2') are raw bytes; if they are bfloat16, save them as float32");
    assert_refused("{'descr': '<U3', 'fortran_order': False, 'shape': (), }", 8, MSP_E_UNSUPPORTED,
                   "byte 20: the elements ('<U3') are text");
    assert_refused("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (), }", 8, MSP_E_UNSUPPORTED,
                   "byte 20: the elements ('<M8[ns]') are dates");
    assert_refused("{'descr': '<f16', 'fortran_order': False, 'shape': (), }", 8, MSP_E_UNSUPPORTED,
                   "byte 20: the elements ('<f16') are of a type that is not read");
    assert_refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }", 8, MSP_E_UNSUPPORTED,
                   "byte 20: a structured array: save its fields one by one");
}

static void
more_than_64_dimensions_are_refused(void **state)
{
    char header[512] = "{'descr': '<f4', 'fortran_order': False, 'shape': (";

    (void)state;
    for (int i = 0; i < 65; i++)
        strcat(header, "1,");
    strcat(header, "), }");
    assert_refused(header, 4, MSP_E_UNSUPPORTED, "byte 189: more than 64 dimensions");
}

/* Read from memory nothing is copied unless it must be; what is said about a wrong file is the same. */
static void
bytes_in_memory_are_used_where_they_are(void **state)
{
    const char *names[] = {"io/matrix.npy", "io/fortran.npy", "io/big_endian.npy"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int64_t live = msp_alloc_live();
        size_t size;
        char *p = test_data(names[i], &size);
        msp_tensor_file *f;
        msp_error one, all;
        msp_tensor t;

        assert_int_equal(msp_tensor_parse(&t, p, size, NULL), MSP_OK);
        assert_values(&t, (const double[]){0, 1, 2, 3, 4, 5}, 6);
        assert_int_equal(t.owner == NULL && (const char *)t.data > p && (const char *)t.data < p + size, i != 2);
        msp_tensor_release(&t);
        assert_int_equal(msp_tensor_parse(&t, p, size - 1, &one), MSP_E_FORMAT);
        assert_int_equal(msp_tensor_file_parse(&f, p, size - 1, &all), MSP_E_FORMAT);
        assert_string_equal(one.message, all.message);
        assert_true(t.data == NULL && t.owner == NULL);
        msp_free(p);
        assert_int_equal(msp_alloc_live(), live);
    }
}

static void
cut_flipped_and_starved_files_are_errors(void **state)
{
    const char *names[] = {"io/matrix.npy", "io/fortran.npy", "io/big_endian.npy", "io/version2.npy",
                           "io/complex128.npy"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t size;
        char *p = test_data(names[i], &size);

        assert_every_cut_fails(parse_and_touch, p, size, size);
        assert_true(flip_every_bit(parse_and_touch, p, size) > 400);
        fail_every_allocation(parse_and_touch, p, size);
        msp_free(p);
    }
}

static void
what_is_saved_is_read_back(void **state)
{
    static unsigned char bytes[4 * 5 * 6 * 16];
    const int64_t shape[] = {4, 5, 6};
    const char *path = scratch_path("saved.npy");

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7);
    for (int d = 1; d < MSP_DTYPE_COUNT; d++) {
        for (int32_t ndim = 0; ndim <= 3; ndim++) {
            bool lacking = d == MSP_BF16 || (d >= MSP_F8_E4M3FN && d <= MSP_F8_E5M2FNUZ);
            msp_tensor t, back;

            assert_int_equal(msp_tensor_view(&t, bytes, (msp_dtype)d, ndim, shape, NULL), MSP_OK);
            assert_int_equal(msp_npy_save(path, &t, NULL), lacking ? MSP_E_UNSUPPORTED : MSP_OK);
            if (lacking)
                continue;
            assert_int_equal(msp_npy_open(&back, path, NULL), MSP_OK);
            assert_int_equal(back.dtype, d);
            assert_true(msp_tensor_same_shape(&t, &back));
            assert_memory_equal(back.data, bytes, (size_t)t.numel * msp_dtype_size(t.dtype));
            msp_tensor_release(&back);
        }
    }
}

static void
a_save_without_memory_leaves_the_old_file(void **state)
{
    const char *path = scratch_path("kept.npy");
    const float values[] = {1, 2, 3, 4};
    const int64_t shape[] = {2, 2};
    int64_t live = msp_alloc_live();
    msp_status st = MSP_E_NOMEM;
    msp_tensor t;
    msp_error err;

    (void)state;
    assert_int_equal(msp_tensor_view(&t, values, MSP_F32, 2, shape, NULL), MSP_OK);
    assert_int_equal(msp_npy_save(path, &t, NULL), MSP_OK);
    t.strides[0] = 1; /* transposed: through the buffer */
    t.strides[1] = 2;
    for (int64_t n = 0; st != MSP_OK; n++) {
        msp_tensor back;

        msp_alloc_fail_after(n);
        st = msp_npy_save(path, &t, &err);
        msp_alloc_fail_after(-1);
        assert_int_equal(msp_alloc_live(), live);
        assert_int_equal(msp_npy_open(&back, path, NULL), MSP_OK);
        assert_values(&back, st == MSP_OK ? (const double[]){1, 3, 2, 4} : (const double[]){1, 2, 3, 4}, 4);
        msp_tensor_release(&back);
        if (st != MSP_OK)
            assert_non_null(strstr(err.message, "kept.npy: out of memory"));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_element_type_is_read),
        TEST(every_order_and_version_gives_the_same_matrix),
        TEST(scalars_empty_and_complex_arrays_are_read),
        TEST(headers_may_be_written_in_any_way_python_allows),
        TEST(headers_that_lie_are_refused),
        TEST(a_cut_header_is_named_with_its_byte),
        TEST(types_that_are_no_numbers_are_named),
        TEST(more_than_64_dimensions_are_refused),
        TEST(bytes_in_memory_are_used_where_they_are),
        TEST(cut_flipped_and_starved_files_are_errors),
        TEST(what_is_saved_is_read_back),
        TEST(a_save_without_memory_leaves_the_old_file),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
