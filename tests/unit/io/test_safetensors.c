/* test_safetensors.c - promises of msprobe/tensor.h about .safetensors files. */
#include "tensors.h"
#include "io/bytes.h"

static void
tensors_are_found_by_name(void **state)
{
    msp_tensor_file *f = open_sample("two.safetensors");
    const msp_tensor *b = find(f, "b.weight");

    (void)state;
    assert_int_equal(msp_tensor_file_count(f), 2);
    assert_int_equal(b->ndim, 2);
    assert_int_equal(b->shape[1], 3);
    for (int64_t i = 0; i < 6; i++)
        assert_true(element(b, i) == (double)i);
    assert_true(element(find(f, "a"), 0) == 5);
    msp_tensor_file_close(f);
}

static void
every_element_type_is_read(void **state)
{
    msp_tensor_file *f = open_sample("dtypes.safetensors");

    (void)state;
    assert_int_equal(msp_tensor_file_count(f), 18);
    for (int d = 1; d < MSP_C128; d++) {
        const msp_tensor *t = find(f, msp_dtype_torch_name((msp_dtype)d) + strlen("torch."));

        assert_int_equal(t->dtype, d);
        assert_true(element(t, 0) == 0 && element(t, 1) == 1 && element(t, 2) == (d == MSP_BOOL ? 1 : 2));
    }
    msp_tensor_file_close(f);
}

static void
scalars_empty_tensors_and_empty_files_are_read(void **state)
{
    msp_tensor_file *f = open_sample("shapes.safetensors");
    msp_error err;
    msp_tensor t;

    (void)state;
    assert_int_equal(find(f, "scalar")->ndim, 0);
    assert_true(element(find(f, "scalar"), 0) == -2.5);
    assert_int_equal(find(f, "empty")->numel, 0);
    assert_null(find(f, "empty")->data);
    assert_int_equal(find(f, "cube")->ndim, 3);
    msp_tensor_file_close(f);
    f = open_sample("nothing.safetensors");
    assert_int_equal(msp_tensor_file_count(f), 0);
    msp_tensor_file_close(f);
    assert_int_equal(msp_tensor_open(&t, MSP_TEST_DATA "/io/nothing.safetensors", &err), MSP_E_NOT_FOUND);
    assert_int_equal(msp_tensor_open(&t, MSP_TEST_DATA "/io/two.safetensors", &err), MSP_E_INVALID);
}

/* A file with this header and n zero bytes of data. */
static msp_status
parse_made(const char *header, size_t n, msp_error *err)
{
    static char bytes[4096];
    size_t len = strlen(header);
    msp_tensor_file *f;
    msp_status st;

    memset(bytes, 0, sizeof(bytes));
    store_u64(bytes, len);
    memcpy(bytes + 8, header, len);
    st = msp_tensor_file_parse(&f, bytes, 8 + len + n, err);
    msp_tensor_file_close(f);
    return st;
}

static void
assert_refused(const char *header, size_t n, msp_status status, const char *message)
{
    msp_error err;

    assert_int_equal(parse_made(header, n, &err), status);
    assert_string_equal(err.message, message);
}

#define T(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end "]}"

static void
headers_that_lie_are_refused(void **state)
{
    (void)state;
    assert_int_equal(parse_made("{\"a\":" T("F32", "2", "0", "8") "}  ", 8, NULL), MSP_OK);
    assert_refused("{\"a\":" T("F32", "2", "0", "8") "}", 7, MSP_E_FORMAT,
                   "tensor 'a': data from 0 to 8, where the file has 0 to 7");
    assert_refused("{\"a\":" T("F32", "2", "8", "0") "}", 8, MSP_E_FORMAT,
                   "tensor 'a': data from 8 to 0, where the file has 0 to 8");
    assert_refused("{\"a\":" T("F32", "2", "-8", "0") "}", 8, MSP_E_FORMAT,
                   "tensor 'a': data from -8 to 0, where the file has 0 to 8");
    assert_refused("{\"a\":" T("F32", "3", "0", "8") "}", 8, MSP_E_FORMAT,
                   "tensor 'a': shape and dtype do not give the number of bytes that \"data_offsets\" say");
    assert_refused("{\"a\":" T("F32", "4611686018427387904,4", "0", "0") "}", 0, MSP_E_FORMAT,
                   "tensor 'a': shape and dtype do not give the number of bytes that \"data_offsets\" say");
    assert_refused("{\"a\":" T("F32", "-1", "0", "8") "}", 8, MSP_E_FORMAT,
                   "tensor 'a': a size that is no number, or is negative");
    assert_refused("{\"a\":" T("F32", "2.0", "0", "8") "}", 8, MSP_E_FORMAT,
                   "tensor 'a': a size that is no number, or is negative");
    assert_refused("{\"a\":" T("F4", "2", "0", "8") "}", 8, MSP_E_UNSUPPORTED,
                   "tensor 'a': elements of the type 'F4' are not read");
    assert_refused("{\"a\":" T("float32", "2", "0", "8") "}", 8, MSP_E_UNSUPPORTED,
                   "tensor 'a': elements of the type 'float32' are not read");
    assert_refused("{\"a\":1}", 0, MSP_E_FORMAT, "tensor 'a': no \"dtype\"");
    assert_refused("{\"a\":{\"dtype\":\"F32\"}}", 0, MSP_E_FORMAT, "tensor 'a': no \"shape\"");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 0, MSP_E_FORMAT,
                   "tensor 'a': no \"data_offsets\" of two numbers");
    assert_refused("{\"a\":" T("F32", "", "0", "4") ",\"a\":" T("F32", "", "4", "8") "}", 8, MSP_E_FORMAT,
                   "tensor 'a': the name is there twice");
    assert_refused("{\"a\\u0000b\":" T("F32", "", "0", "4") "}", 4, MSP_E_FORMAT,
                   "the name of tensor 0 has a 0 byte in it");
}

static void
gaps_and_overlaps_are_refused(void **state)
{
    (void)state;
    assert_refused("{\"a\":" T("F32", "2", "0", "8") ",\"b\":" T("F32", "2", "4", "12") "}", 12, MSP_E_FORMAT,
                   "tensor 'b': its data begins at 4 and should at 8: two tensors overlap");
    assert_refused("{\"a\":" T("F32", "2", "0", "8") ",\"b\":" T("F32", "1", "12", "16") "}", 16, MSP_E_FORMAT,
                   "tensor 'b': its data begins at 12 and should at 8: a gap");
    assert_refused("{\"a\":" T("F32", "2", "0", "8") "}", 9, MSP_E_FORMAT,
                   "1 bytes at the end of the file belong to no tensor");
    assert_int_equal(parse_made("{\"b\":" T("F32", "1", "8", "12") ",\"e\":" T("F32", "0", "8",
                                                                               "8") ",\"a\":" T("F32", "2", "0",
                                                                                                "8") "}",
                                12, NULL),
                     MSP_OK);
}

static void
headers_that_are_no_json_object_are_refused(void **state)
{
    char bytes[64] = {0};
    msp_tensor_file *f;
    msp_error err;

    (void)state;
    assert_int_equal(parse_made("{\"a\"}", 0, &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "header: line 1, column 5 (byte 4): expected ':'"));
    store_u64(bytes, 50);
    bytes[8] = '{';
    assert_int_equal(msp_tensor_file_parse(&f, bytes, 20, &err), MSP_E_FORMAT);
    assert_string_equal(err.message, "header of 50 bytes cut short at byte 20");
}

static void
more_than_64_dimensions_are_refused(void **state)
{
    char header[512] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1";

    (void)state;
    for (int i = 0; i < 64; i++)
        strcat(header, ",1");
    strcat(header, "],\"data_offsets\":[0,4]}}");
    assert_refused(header, 4, MSP_E_FORMAT, "tensor 'a': more than 64 dimensions");
}

static void
cut_flipped_and_starved_files_are_errors(void **state)
{
    const char *names[] = {"io/two.safetensors", "io/shapes.safetensors"};

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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensors_are_found_by_name),
        TEST(every_element_type_is_read),
        TEST(scalars_empty_tensors_and_empty_files_are_read),
        TEST(headers_that_lie_are_refused),
        TEST(gaps_and_overlaps_are_refused),
        TEST(headers_that_are_no_json_object_are_refused),
        TEST(more_than_64_dimensions_are_refused),
        TEST(cut_flipped_and_starved_files_are_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
