/* test_pt.c - promises of msprobe/tensor.h about reading .pt files. The samples were written by torch 2.13 (make.py
 * beside them). */
#include "tensors.h"

static void
assert_shape(const msp_tensor *t, msp_dtype dtype, int32_t ndim, int64_t a, int64_t b)
{
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->ndim, ndim);
    if (ndim > 0)
        assert_int_equal(t->shape[0], a);
    if (ndim > 1)
        assert_int_equal(t->shape[1], b);
}

static void
assert_f32_matrix(const char *sample)
{
    msp_tensor_file *f = open_sample(sample);

    assert_int_equal(msp_tensor_file_count(f), 1);
    assert_string_equal(msp_tensor_file_name(f, 0), "");
    assert_shape(msp_tensor_file_at(f, 0), MSP_F32, 2, 2, 3);
    ASSERT_VALUES(msp_tensor_file_at(f, 0), 0, 1, 2, 3, 4, 5);
    msp_tensor_file_close(f);
}

static void
a_single_tensor_has_the_empty_name(void **state)
{
    (void)state;
    assert_f32_matrix("f32.pt");
    assert_f32_matrix("no_crc.pt");
    assert_f32_matrix("zip64.pt");
    assert_f32_matrix("legacy.pt");
}

static void
a_small_file_is_one_block_of_memory(void **state)
{
    static const char *const samples[] = {"f32.pt", "zip64.pt"};
    char path[512];
    msp_tensor t;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/io/%s", MSP_TEST_DATA, samples[i]);
        msp_alloc_fail_after(1);
        assert_int_equal(msp_tensor_open(&t, path, NULL), MSP_OK);
        msp_alloc_fail_after(-1);
        msp_tensor_release(&t);
    }
}

static void
an_open_tensor_owns_what_it_views(void **state)
{
    int64_t live = msp_alloc_live();
    msp_error err;
    msp_tensor t;

    (void)state;
    if (msp_tensor_open(&t, MSP_TEST_DATA "/io/f32.pt", &err) != MSP_OK)
        fail_msg("%s", err.message);
    ASSERT_VALUES(&t, 0, 1, 2, 3, 4, 5);
    assert_false(t.requires_grad);
    msp_tensor_release(&t);
    assert_null(t.data);
    assert_int_equal(msp_pt_open(&t, MSP_TEST_DATA "/io/legacy.pt", &err), MSP_OK);
    ASSERT_VALUES(&t, 0, 1, 2, 3, 4, 5);
    msp_tensor_release(&t);
    msp_tensor_release(&t);
    assert_int_equal(msp_alloc_live(), live);
}

static void
scalars_empty_strided_and_expanded_tensors_keep_their_form(void **state)
{
    msp_tensor_file *f = open_sample("scalar.pt");

    (void)state;
    assert_shape(msp_tensor_file_at(f, 0), MSP_F64, 0, 0, 0);
    ASSERT_VALUES(msp_tensor_file_at(f, 0), -2.5);
    msp_tensor_file_close(f);

    f = open_sample("empty.pt");
    assert_shape(msp_tensor_file_at(f, 0), MSP_F32, 2, 0, 3);
    assert_int_equal(msp_tensor_file_at(f, 0)->numel, 0);
    assert_null(msp_tensor_file_at(f, 0)->data);
    msp_tensor_file_close(f);

    f = open_sample("strided.pt");
    assert_shape(msp_tensor_file_at(f, 0), MSP_I32, 2, 3, 3);
    ASSERT_VALUES(msp_tensor_file_at(f, 0), 6, 12, 18, 8, 14, 20, 10, 16, 22);
    msp_tensor_file_close(f);

    f = open_sample("expanded.pt");
    assert_shape(msp_tensor_file_at(f, 0), MSP_F32, 2, 3, 4);
    ASSERT_VALUES(msp_tensor_file_at(f, 0), 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7);
    msp_tensor_file_close(f);
}

static void
every_element_type_is_read(void **state)
{
    msp_tensor_file *f = open_sample("dtypes.pt");

    (void)state;
    assert_int_equal(msp_tensor_file_count(f), MSP_DTYPE_COUNT - 1);
    for (int t = 1; t < MSP_DTYPE_COUNT; t++) {
        const msp_tensor *v = find(f, msp_dtype_torch_name((msp_dtype)t) + strlen("torch."));

        assert_shape(v, (msp_dtype)t, 1, 3, 0);
        ASSERT_VALUES(v, 0, 1, t == MSP_BOOL ? 1 : 2);
    }
    msp_tensor_file_close(f);
}

static void
tensors_that_share_a_storage_share_memory(void **state)
{
    msp_tensor_file *f = open_sample("shared.pt");
    const msp_tensor *all = find(f, "all"), *tail = find(f, "tail"), *same = find(f, "same");

    (void)state;
    assert_ptr_equal((const int64_t *)all->data + 7, tail->data);
    assert_ptr_equal(all->data, same->data);
    ASSERT_VALUES(tail, 7, 8, 9);
    msp_tensor_file_close(f);
}

static void
nested_containers_give_dotted_names(void **state)
{
    msp_tensor_file *f = open_sample("nested.pt");

    (void)state;
    assert_int_equal(msp_tensor_file_count(f), 7);
    ASSERT_VALUES(find(f, "model.layers.0.w"), 0, 1, 2, 3, 4, 5);
    ASSERT_VALUES(find(f, "model.layers.1.w"), 1, 2, 3, 4, 5, 6);
    ASSERT_VALUES(find(f, "model.p"), 0, 2, 4, 6, 8, 10);
    assert_true(find(f, "model.p")->requires_grad);
    ASSERT_VALUES(find(f, "optimizer.0.0"), 1);
    ASSERT_VALUES(find(f, "optimizer.#1"), 2);
    ASSERT_VALUES(find(f, "tagged"), 1, 2);
    ASSERT_VALUES(find(f, "plain"), 3);
    msp_tensor_file_close(f);

    f = open_sample("state_dict.pt");
    assert_string_equal(msp_tensor_file_name(f, 0), "weight");
    assert_string_equal(msp_tensor_file_name(f, 1), "bias");
    ASSERT_VALUES(msp_tensor_file_at(f, 1), 10, 20);
    msp_tensor_file_close(f);
}

static void
requires_grad_is_told(void **state)
{
    msp_tensor_file *f = open_sample("grad.pt");

    (void)state;
    assert_true(msp_tensor_file_at(f, 0)->requires_grad);
    msp_tensor_file_close(f);
}

static void
rebuild_functions_of_devices_and_old_versions_are_known(void **state)
{
    msp_tensor_file *f = open_sample("npu.pt");

    (void)state;
    assert_shape(msp_tensor_file_at(f, 0), MSP_F32, 2, 2, 3);
    ASSERT_VALUES(msp_tensor_file_at(f, 0), 0, 1, 2, 3, 4, 5);
    assert_true(msp_tensor_file_at(f, 0)->requires_grad);
    msp_tensor_file_close(f);
    f = open_sample("device.pt");
    ASSERT_VALUES(msp_tensor_file_at(f, 0), 0, 1, 2, 3, 4, 5);
    msp_tensor_file_close(f);
    f = open_sample("v1.pt");
    ASSERT_VALUES(msp_tensor_file_at(f, 0), 1, 2, 3, 4, 5);
    msp_tensor_file_close(f);
}

static void
compressed_and_big_endian_storages_are_copied(void **state)
{
    msp_tensor_file *f = open_sample("deflated.pt");

    (void)state;
    ASSERT_VALUES(find(f, "a"), 0, 1, 2, 3, 4, 5);
    assert_int_equal(find(f, "b")->numel, 1000);
    assert_true(msp_dtype_load_f64(MSP_F32, msp_tensor_at(find(f, "b"), 999)) == 0);
    msp_tensor_file_close(f);

    f = open_sample("big_endian.pt");
    ASSERT_VALUES(find(f, "f"), 0, 1, 2, 3, 4, 5);
    ASSERT_VALUES(find(f, "c"), 1);
    assert_true(((const float *)find(f, "c")->data)[1] == 2);
    ASSERT_VALUES(find(f, "b"), 1, 0);
    ASSERT_VALUES(find(f, "h"), 1, 2);
    msp_tensor_file_close(f);
}

static void
a_byte_order_that_is_none_is_refused(void **state)
{
    size_t size;
    char *p = test_data("io/no_crc.pt", &size);
    msp_tensor_file *f;
    msp_error err;

    (void)state;
    memcpy(memmem(p, size, "little", 6), "middle", 6);
    assert_int_equal(msp_tensor_file_parse(&f, p, size, &err), MSP_E_FORMAT);
    assert_string_equal(err.message, "the record 'byteorder' says neither little nor big");
    msp_free(p);
}

static void
legacy_files_are_read(void **state)
{
    msp_tensor_file *f = open_sample("legacy_dict.pt");

    (void)state;
    ASSERT_VALUES(find(f, "a"), 0, 1, 2, 3, 4, 5);
    ASSERT_VALUES(find(f, "b"), 3, 4, 5);
    ASSERT_VALUES(find(f, "c"), 0, 1, 2, 3, 4);
    ASSERT_VALUES(find(f, "d.0"), 1);
    assert_ptr_equal((const float *)find(f, "a")->data + 3, find(f, "b")->data);
    msp_tensor_file_close(f);
    f = open_sample("legacy_protocol4.pt");
    ASSERT_VALUES(find(f, "a"), 0, 1, 2, 3, 4, 5);
    msp_tensor_file_close(f);
    f = open_sample("legacy_untyped.pt");
    ASSERT_VALUES(find(f, "h"), 1, 2);
    msp_tensor_file_close(f);
}

static void
files_of_torch_1_13_are_read(void **state)
{
    const char *names[] = {"torch113.pt", "torch113_legacy.pt"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        msp_tensor_file *f = open_sample(names[i]);

        ASSERT_VALUES(find(f, "a"), 0, 3, 1, 4, 2, 5);
        ASSERT_VALUES(find(f, "p"), 1, 1);
        assert_true(find(f, "p")->requires_grad);
        ASSERT_VALUES(find(f, "b.0"), 1, 2);
        assert_int_equal(find(f, "b.0")->dtype, MSP_BF16);
        msp_tensor_file_close(f);
    }
}

static void
assert_refused(const char *name, msp_status status, const char *text)
{
    char path[512];
    msp_tensor_file *f;
    msp_error err;
    size_t len;

    snprintf(path, sizeof(path), "%s/io/%s", MSP_TEST_DATA, name);
    len = strlen(path);
    assert_int_equal(msp_tensor_file_open(&f, path, &err), status);
    assert_null(f);
    assert_memory_equal(err.message, path, len);
    assert_memory_equal(err.message + len, ": ", 2);
    if (strstr(err.message + len, text) == NULL)
        fail_msg("'%s' is not in '%s'", text, err.message + len);
    assert_null(strstr(err.message + len, path));
}

static void
what_is_not_read_is_named(void **state)
{
    (void)state;
    assert_refused("evil.pt", MSP_E_UNSUPPORTED, "data.pkl: pickle byte 2: refused os.system: only tensors");
    assert_refused("sparse.pt", MSP_E_UNSUPPORTED, "a sparse tensor: save it after .to_dense()");
    assert_refused("quantized.pt", MSP_E_UNSUPPORTED, "a quantized tensor: save it after .dequantize()");
    assert_refused("meta.pt", MSP_E_UNSUPPORTED, "a meta tensor, which holds no values");
    assert_refused("conj.pt", MSP_E_UNSUPPORTED, "save it after .resolve_conj()");
    assert_refused("array.pt", MSP_E_UNSUPPORTED, "a NumPy array");
    assert_refused("complex32.pt", MSP_E_UNSUPPORTED, "torch.complex32");
    assert_refused("module.pt", MSP_E_UNSUPPORTED, "refused torch.nn.modules.linear.Identity");
    assert_refused("script.pt", MSP_E_UNSUPPORTED, "a TorchScript program: save its state_dict()");
    assert_refused("arrays.npz", MSP_E_UNSUPPORTED, "an .npz archive");
    assert_refused("plain.pkl", MSP_E_FORMAT, "a pickle, but not one that torch.save() wrote");
    assert_refused("stored.zip", MSP_E_FORMAT, "an archive without data.pkl");
    assert_refused("README.md", MSP_E_FORMAT, "neither .npy nor .pt nor .safetensors");
    assert_refused("absent.pt", MSP_E_NOT_FOUND, "cannot open");
}

static void
one_tensor_means_exactly_one(void **state)
{
    msp_error err;
    msp_tensor t;

    (void)state;
    assert_int_equal(msp_tensor_open(&t, MSP_TEST_DATA "/io/numbers.pt", &err), MSP_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "numbers.pt: no tensor inside"));
    assert_int_equal(msp_tensor_open(&t, MSP_TEST_DATA "/io/state_dict.pt", &err), MSP_E_INVALID);
    assert_non_null(strstr(err.message, "state_dict.pt: 2 tensors inside ('weight', 'bias', ...), where one is"));
    assert_null(t.owner);
    assert_int_equal(msp_pt_open(&t, MSP_TEST_DATA "/io/matrix.npy", &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "matrix.npy: not a .pt file"));
}

/* ---- damage ----------------------------------------------------------------------------------------------------- */

static void
cut_flipped_and_starved_files_are_errors(void **state)
{
    const char *names[] = {"io/f32.pt",   "io/nested.pt",      "io/deflated.pt",         "io/big_endian.pt",
                           "io/zip64.pt", "io/legacy_dict.pt", "io/legacy_protocol4.pt", "io/strided.pt",
                           "io/npu.pt",   "io/shared.pt"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t size;
        char *p = test_data(names[i], &size);

        assert_every_cut_fails(parse_and_touch, p, size, size);
        assert_true(flip_every_bit(parse_and_touch, p, size) > size / 2);
        fail_every_allocation(parse_and_touch, p, size);
        msp_free(p);
    }
}

/* A bit of the pickle cannot change unnoticed: the archive's checksum covers it. */
static void
a_changed_pickle_is_noticed(void **state)
{
    size_t size, flips = 0;
    char *p = test_data("io/f32.pt", &size), *pickle = memmem(p, size, "\x80\2ctorch", 8);

    (void)state;
    for (size_t i = 0; i < 154 * 8; i++) {
        pickle[i / 8] ^= (char)(1 << i % 8);
        flips += parse_copy(parse_and_touch, p, size) != MSP_OK;
        pickle[i / 8] ^= (char)(1 << i % 8);
    }
    assert_int_equal(flips, 154 * 8);
    msp_free(p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_single_tensor_has_the_empty_name),
        TEST(a_small_file_is_one_block_of_memory),
        TEST(an_open_tensor_owns_what_it_views),
        TEST(scalars_empty_strided_and_expanded_tensors_keep_their_form),
        TEST(every_element_type_is_read),
        TEST(tensors_that_share_a_storage_share_memory),
        TEST(nested_containers_give_dotted_names),
        TEST(requires_grad_is_told),
        TEST(rebuild_functions_of_devices_and_old_versions_are_known),
        TEST(compressed_and_big_endian_storages_are_copied),
        TEST(a_byte_order_that_is_none_is_refused),
        TEST(legacy_files_are_read),
        TEST(files_of_torch_1_13_are_read),
        TEST(what_is_not_read_is_named),
        TEST(one_tensor_means_exactly_one),
        TEST(cut_flipped_and_starved_files_are_errors),
        TEST(a_changed_pickle_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
