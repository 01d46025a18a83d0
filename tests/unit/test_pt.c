/* test_pt.c - promises of msprobe/tensor.h about .pt files. The samples were written by torch 2.13 (make.py beside
 * them). */
#include "tensors.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "core/file.h"
#include "core/str.h"
#include "io/tensor_file.h"
#include "io/zip.h"
#include "msprobe/stats.h"

#define ASSERT_VALUES(t, ...) \
    assert_values(t, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

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

/* ---- hand-made pickles ------------------------------------------------------------------------------------------ */

#define ADD(b, literal) msp_buf_add(b, literal, sizeof(literal) - 1)
#define STORAGE(class, numel)                       \
    "(X\7\0\0\0storagectorch\n" class "\nX\1\0\0\0" \
                                      "0X\3\0\0\0cpu" numel "tQ"
#define V2(storage, rest) "\x80\2ctorch._utils\n_rebuild_tensor_v2\n(" storage rest "\x89NtR."

/* An archive with this pickle and a storage of 24 bytes: 0.0 to 5.0 in float32. */
static msp_status
parse_pickle(msp_tensor_file **out, const char *pickle, size_t n, msp_error *err)
{
    static const float values[] = {0, 1, 2, 3, 4, 5};
    static char bytes[2 << 20];
    static size_t size;
    msp_file file = MSP_FILE_NONE;
    msp_zip_writer w;
    char *p;

    assert_int_equal(msp_file_create(&file, scratch_path("made.pt"), 0640, NULL), MSP_OK);
    msp_zip_writer_init(&w, &file);
    assert_int_equal(msp_zip_writer_begin(&w, MSP_STR("x/data.pkl"), n, 64, NULL), MSP_OK);
    assert_int_equal(msp_zip_writer_data(&w, pickle, n, NULL), MSP_OK);
    assert_int_equal(msp_zip_writer_end(&w, NULL), MSP_OK);
    assert_int_equal(msp_zip_writer_begin(&w, MSP_STR("x/data/0"), sizeof(values), 64, NULL), MSP_OK);
    assert_int_equal(msp_zip_writer_data(&w, values, sizeof(values), NULL), MSP_OK);
    assert_int_equal(msp_zip_writer_end(&w, NULL), MSP_OK);
    assert_int_equal(msp_zip_writer_finish(&w, NULL), MSP_OK);
    msp_zip_writer_release(&w);
    assert_int_equal(msp_file_commit(&file, NULL), MSP_OK);
    assert_int_equal(msp_file_read(&p, &size, scratch_path("made.pt"), sizeof(bytes), NULL), MSP_OK);
    memcpy(bytes, p, size);
    msp_free(p);
    return msp_tensor_file_parse(out, bytes, size, err);
}

static void
assert_made(const char *pickle, size_t n, msp_status status, const char *message)
{
    msp_tensor_file *f;
    msp_error err = {0};

    assert_int_equal(parse_pickle(&f, pickle, n, &err), status);
    if (status != MSP_OK && strstr(err.message, message) == NULL)
        fail_msg("'%s' is not in '%s'", message, err.message);
    msp_tensor_file_close(f);
}

#define ASSERT_MADE(literal, status, message) assert_made(literal, sizeof(literal) - 1, status, message)

static void
a_view_that_leaves_its_storage_is_refused(void **state)
{
    (void)state;
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\0K\6\x85K\1\x85"), MSP_OK, "");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\5K\1\x85K\1\x85"), MSP_OK, "");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\1K\6\x85K\1\x85"), MSP_E_FORMAT,
                "a tensor reaches from element 1 over 6 elements of storage '0', which has 6");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\0K\3\x85K\3\x85"), MSP_E_FORMAT,
                "a tensor reaches from element 0 over 7 elements of storage '0', which has 6");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\7"), "K\0K\7\x85K\1\x85"), MSP_E_FORMAT,
                "storage '0' has 24 bytes and should have 28");
    ASSERT_MADE(V2(STORAGE("DoubleStorage", "K\6"), "K\0K\1\x85K\1\x85"), MSP_E_FORMAT,
                "storage '0' has 24 bytes and should have 48");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "J\xff\xff\xff\xffK\1\x85K\1\x85"), MSP_E_FORMAT,
                "the offset of a tensor is no number, or is negative");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\0J\xff\xff\xff\xff\x85K\1\x85"), MSP_E_FORMAT,
                "a size or stride of a tensor is no number, or is negative");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\5K\2\x85J\xff\xff\xff\xff\x85"), MSP_E_FORMAT,
                "a size or stride of a tensor is no number, or is negative");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\0K\1K\1\x86K\1\x85"), MSP_E_FORMAT,
                "a tensor of 2 sizes and 1 strides");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "J\xff\xff\xff\xff"), "K\0K\1\x85K\1\x85"), MSP_E_FORMAT,
                "a persistent id that is no storage");
}

#define BIG "\x8a\x8\0\0\0\0\0\0\0\x40" /* 2^62 */

static void
extents_that_overflow_are_refused(void **state)
{
    (void)state;
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\0" BIG BIG "\x86K\0K\0\x86"), MSP_E_FORMAT,
                "the extent of a tensor does not fit 63 bits");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\0K\x8\x85" BIG "\x85"), MSP_E_FORMAT,
                "the extent of a tensor does not fit 63 bits");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), BIG "K\2\x85K\1\x85"), MSP_E_FORMAT,
                "a tensor reaches from element");
    ASSERT_MADE(V2(STORAGE("FloatStorage", BIG), "K\0K\2\x85K\1\x85"), MSP_E_FORMAT,
                "a storage whose size does not fit 64 bits");
    ASSERT_MADE(V2(STORAGE("ByteStorage", BIG), "K\0K\2\x85K\1\x85"), MSP_E_FORMAT,
                "storage '0' has 24 bytes and should have");
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\0" BIG "K\0\x86K\1K\1\x86"), MSP_OK, ""); /* no elements at all */
    /* 2^34 elements out of one: walking them would take for ever */
    ASSERT_MADE(V2(STORAGE("FloatStorage", "K\6"), "K\0\x8a\5\0\0\0\0\4\x85K\0\x85"), MSP_E_LIMIT,
                "a tensor of 17179869184 elements over a storage of 6");
}

static void
calls_with_wrong_arguments_are_refused(void **state)
{
    (void)state;
    ASSERT_MADE("\x80\2ctorch._utils\n_rebuild_tensor_v2\n)R.", MSP_E_FORMAT, "with too few arguments");
    ASSERT_MADE("\x80\2ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNtR.", MSP_E_FORMAT, "without a typed storage");
    ASSERT_MADE("\x80\2ctorch._utils\n_rebuild_tensor_v3\n(NNNNNNNtR.", MSP_E_FORMAT, "without a storage and a dtype");
    ASSERT_MADE("\x80\2ctorch._utils\n_rebuild_parameter\n(NNNtR.", MSP_E_FORMAT, "without a tensor");
    ASSERT_MADE("\x80\2ctorch._utils\n_rebuild_parameter\n)R.", MSP_E_FORMAT, "without a tensor");
    ASSERT_MADE("\x80\2ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\nN)NtR.",
                MSP_E_FORMAT, "by something that rebuilds no tensor");
    ASSERT_MADE("\x80\2ctorch\nfloat32\n)R.", MSP_E_FORMAT, "a call of something that is no function");
    ASSERT_MADE("\x80\2NQ.", MSP_E_FORMAT, "a persistent id that is no storage");
    ASSERT_MADE("\x80\2(X\6\0\0\0moduleNNtQ.", MSP_E_UNSUPPORTED, "a whole module was saved: save its state_dict()");
    ASSERT_MADE("\x80\2ctorch\nQInt8Storage\n.", MSP_E_UNSUPPORTED, "torch.QInt8Storage has elements of a type");
    ASSERT_MADE("\x80\2cposix.torch\nFloatStorage\n.", MSP_E_UNSUPPORTED, "refused posix.torch.FloatStorage");
    ASSERT_MADE("\x80\2ctorch\nload\n.", MSP_E_UNSUPPORTED, "refused torch.load");
}

#define UNTYPED                                                  \
    "(X\7\0\0\0storagectorch.storage\nUntypedStorage\nX\1\0\0\0" \
    "0X\3\0\0\0cpuK\x18tQ"
#define V3(rest) "\x80\2ctorch._utils\n_rebuild_tensor_v3\n(" rest "tR."
#define DEVICE   "\x80\2ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n("
#define MATRIX   "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("FloatStorage", "K\6") "K\0K\6\x85K\1\x85\x89NtR"

static void
rarer_forms_of_tensors_are_checked_too(void **state)
{
    (void)state;
    ASSERT_MADE(V3(UNTYPED "K\0K\x0c\x85K\1\x85\x89Nctorch\nuint16\n"), MSP_OK, "");
    ASSERT_MADE(V3(UNTYPED "K\0K\x0c\x85K\1\x85\x89Nctorch\nuint16\n}X\4\0\0\0conj\x89s"), MSP_OK, "");
    ASSERT_MADE(V3(UNTYPED "K\0K\x0c\x85K\1\x85\x89Nctorch\nuint16\n}X\3\0\0\0neg\x88s"), MSP_E_UNSUPPORTED,
                "a tensor is stored before its neg is applied: save it after .resolve_neg()");
    ASSERT_MADE(V3(UNTYPED "K\1K\x0c\x85K\1\x85\x89Nctorch\nuint16\n"), MSP_E_FORMAT,
                "a tensor reaches from element 1 over 12 elements of storage '0', which has 12");
    ASSERT_MADE(V3(STORAGE("FloatStorage", "K\6") "K\0K\x0c\x85K\1\x85\x89Nctorch\nuint16\n"), MSP_OK, "");
    ASSERT_MADE(V2(UNTYPED, "K\0K\1\x85K\1\x85"), MSP_E_FORMAT, "without a typed storage");
    ASSERT_MADE(DEVICE MATRIX "ctorch\nfloat32\nN\x88tR.", MSP_OK, "");
    ASSERT_MADE(DEVICE MATRIX "ctorch\nfloat16\nN\x88tR.", MSP_E_UNSUPPORTED, "in another type than its own");
    ASSERT_MADE(DEVICE "NNNNtR.", MSP_E_FORMAT, "without a tensor and a dtype");
    ASSERT_MADE("\x80\2ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nNNNtR.", MSP_E_FORMAT,
                "a tensor subclass is rebuilt without arguments");
    ASSERT_MADE("\x80\2ctorch\nSize\nN\x85R.", MSP_E_FORMAT, "a torch.Size is made of something that is no tuple");
    ASSERT_MADE("\x80\2ccollections\nOrderedDict\n]Na\x85R.", MSP_E_FORMAT, "made of something that is no pair");
    ASSERT_MADE("\x80\2(ctorch\ndevice\nX\3\0\0\0cpuo.", MSP_OK, "");
    ASSERT_MADE("\x80\2(X\3\0\0\0cpuitorch\ndevice\n.", MSP_OK, "");
    ASSERT_MADE("\x80\2ctorch\ndevice\n)}\x92.", MSP_OK, "");
    ASSERT_MADE("\x80\2ctorch\ndevice\n)}NNs\x92.", MSP_E_UNSUPPORTED, "an object is made with keyword arguments");
}

static void
an_ordered_dict_may_be_made_of_pairs(void **state)
{
    static const char pickle[] = "\x80\2ccollections\nOrderedDict\n](](X\1\0\0\0a" MATRIX "eX\1\0\0\0b" MATRIX "\x86"
                                 "e\x85R.";
    msp_tensor_file *f;
    msp_error err;

    (void)state;
    if (parse_pickle(&f, pickle, sizeof(pickle) - 1, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(msp_tensor_file_count(f), 2);
    ASSERT_VALUES(find(f, "a"), 0, 1, 2, 3, 4, 5);
    ASSERT_VALUES(find(f, "b"), 0, 1, 2, 3, 4, 5);
    msp_tensor_file_close(f);
}

static void
more_than_64_dimensions_are_refused(void **state)
{
    msp_buf b = {0};

    (void)state;
    ADD(&b, "\x80\2ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("FloatStorage", "K\6") "K\0(");
    for (int i = 0; i < 65; i++)
        ADD(&b, "K\1");
    ADD(&b, "t)\x89NtR.");
    assert_made(b.p, b.len, MSP_E_UNSUPPORTED, "a tensor of 65 dimensions; 64 are possible");
    msp_buf_release(&b);
}

static void
containers_within_themselves_end(void **state)
{
    /* l = []; l.append(l) */
    static const char loop[] = "\x80\2]q\0h\0a.";
    /* 64 times: l = [l, l] */
    static char doubling[600] = "\x80\2)";
    size_t n = 3;

    (void)state;
    ASSERT_MADE(loop, MSP_E_LIMIT, "dicts and lists nested deeper than 100, or within themselves");
    for (int i = 0; i < 64; i++) {
        memcpy(doubling + n, "2\x86", 2);
        n += 2;
    }
    doubling[n++] = '.';
    assert_made(doubling, n, MSP_E_LIMIT, "lists within lists unfold to more values than the file has bytes");
}

static void
deep_nesting_within_the_limit_is_read(void **state)
{
    static char deep[400] = "\x80\2";
    const char tensor[] =
        "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("FloatStorage", "K\6") "K\0K\1\x85K\1\x85\x89NtR";
    msp_tensor_file *f;
    size_t n = 2;

    (void)state;
    memcpy(deep + n, tensor, sizeof(tensor) - 1);
    n += sizeof(tensor) - 1;
    for (int i = 0; i < 99; i++)
        deep[n++] = '\x85';
    deep[n++] = '.';
    assert_int_equal(parse_pickle(&f, deep, n, NULL), MSP_OK);
    assert_int_equal(msp_tensor_file_count(f), 1);
    assert_int_equal(strlen(msp_tensor_file_name(f, 0)), 99 * 2 - 1);
    msp_tensor_file_close(f);
}

static void
a_name_with_a_zero_byte_is_refused(void **state)
{
    (void)state;
    ASSERT_MADE("\x80\2}X\3\0\0\0a\0bctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("FloatStorage",
                                                                                   "K\6") "K\0))\x89NtRs.",
                MSP_E_FORMAT, "the name of tensor 0 has a 0 byte in it");
}

/* The machine builds one tensor after the other out of two remembered values: 5 bytes each, and over 1000 of ours. */
static void
a_flood_of_tensors_ends_at_the_limit(void **state)
{
    static const char start[] = "\x80\2ctorch._utils\n_rebuild_tensor_v2\nq\0"
                                "0(" STORAGE("FloatStorage", "K\6") "K\0K\1\x85K\1\x85\x89Ntq\1"
                                                                    "0(";
    size_t n = sizeof(start) - 1, tensors = 250 * 1000;
    char *p = malloc(n + 5 * tensors + 2);

    (void)state;
    memcpy(p, start, n);
    for (size_t i = 0; i < tensors; i++, n += 5)
        memcpy(p + n, "h\0h\1R", 5);
    memcpy(p + n, "l.", 2);
    assert_made(p, n + 2, MSP_E_LIMIT, "describing its content takes more memory than a file of this size may");
    free(p);
}

/* A text of 60 kB and little else, used again and again for two bytes: work must not grow with the square. */
static void
long_keys_that_are_used_often_end_at_the_limit(void **state)
{
    msp_buf b = {0};

    (void)state;
    ADD(&b, "\x80\2X\x60\xea\0\0");
    for (int i = 0; i < 60000; i++)
        msp_buf_char(&b, 'k');
    ADD(&b, "q\0(");
    for (int i = 0; i < 200000; i++)
        ADD(&b, "h\0N");
    ADD(&b, "d.");
    assert_made(b.p, b.len, MSP_E_LIMIT, "unfold to more values than the file has bytes");
    msp_buf_release(&b);
}

static void
long_storage_keys_and_metadata_are_refused(void **state)
{
    msp_buf b = {0};

    (void)state;
    ADD(&b, "\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\1\1\0\0");
    for (int i = 0; i < 257; i++)
        msp_buf_char(&b, '0');
    ADD(&b, "NK\6tQ.");
    assert_made(b.p, b.len, MSP_E_LIMIT, "a storage with a key of 257 bytes");
    msp_buf_clear(&b);
    ADD(&b, "\x80\2ctorch._utils\n_rebuild_tensor_v2\n(NNNNNN(");
    for (int i = 0; i < 66; i++)
        msp_buf_char(&b, 'N');
    ADD(&b, "dtR.");
    assert_made(b.p, b.len, MSP_E_LIMIT, "a tensor with 66 values of metadata");
    msp_buf_release(&b);
}

/* ---- legacy files by hand --------------------------------------------------------------------------------------- */

#define LEGACY_HEAD "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2M\xe9\3.\x80\2}."
#define LEGACY_TENSOR(view, rest)                                                                                     \
    "\x80\2ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nByteStorage\nX\1\0\0\0kX\3\0\0\0cpuK\x8" view \
    "tQ" rest "\x89NtR."
#define LEGACY_KEYS    "\x80\2]X\1\0\0\0ka."
#define LEGACY_STORAGE "\x8\0\0\0\0\0\0\0\1\2\3\4\5\6\7\x8"

static msp_status
parse_legacy(const char *p, size_t n, double *first, msp_error *err)
{
    msp_tensor_file *f;
    msp_status st = msp_tensor_file_parse(&f, p, n, err);

    if (st == MSP_OK)
        *first = msp_dtype_load_f64(MSP_U8, msp_tensor_file_at(f, 0)->data);
    msp_tensor_file_close(f);
    return st;
}

#define PARSE_LEGACY(literal) parse_legacy(literal, sizeof(literal) - 1, &first, &err)

static void
legacy_storages_may_be_parts_of_others(void **state)
{
    double first;
    msp_error err;

    (void)state;
    assert_int_equal(PARSE_LEGACY(LEGACY_HEAD LEGACY_TENSOR("N", "K\2K\3\x85K\1\x85") LEGACY_KEYS LEGACY_STORAGE),
                     MSP_OK);
    assert_true(first == 3);
    assert_int_equal(PARSE_LEGACY(LEGACY_HEAD LEGACY_TENSOR("X\1\0\0\0vK\4K\4\x87", "K\2K\2\x85K\1\x85")
                                      LEGACY_KEYS LEGACY_STORAGE),
                     MSP_OK);
    assert_true(first == 7);
    assert_int_equal(PARSE_LEGACY(LEGACY_HEAD LEGACY_TENSOR("X\1\0\0\0vK\4K\4\x87", "K\2K\3\x85K\1\x85")
                                      LEGACY_KEYS LEGACY_STORAGE),
                     MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "a tensor reaches from element 2 over 3 elements of storage 'k', which has 4"));
    assert_int_equal(PARSE_LEGACY(LEGACY_HEAD LEGACY_TENSOR("X\1\0\0\0vK\5K\4\x87", "K\0K\1\x85K\1\x85")
                                      LEGACY_KEYS LEGACY_STORAGE),
                     MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "a storage is a part of another that it does not fit"));
}

static void
legacy_files_with_missing_or_foreign_parts_are_refused(void **state)
{
    static char tar[512] = {'x'};
    double first;
    msp_error err;

    (void)state;
    assert_int_equal(PARSE_LEGACY(LEGACY_HEAD LEGACY_TENSOR("N", "K\0K\1\x85K\1\x85") "\x80\2]."), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "storage 'k' is not in the file"));
    assert_int_equal(PARSE_LEGACY(LEGACY_HEAD "\x80\2N." LEGACY_KEYS LEGACY_STORAGE), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "storage 'k' is listed, but nothing uses it"));
    assert_int_equal(PARSE_LEGACY(LEGACY_HEAD LEGACY_TENSOR(
                         "N", "K\0K\1\x85K\1\x85") "\x80\2]X\1\0\0\0kaX\1\0\0\0ka." LEGACY_STORAGE LEGACY_STORAGE),
                     MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "storage 'k' is listed, but was there already"));
    assert_int_equal(PARSE_LEGACY(LEGACY_HEAD LEGACY_TENSOR("N", "K\0K\1\x85K\1\x85") LEGACY_KEYS
                                  "\7\0\0\0\0\0\0\0\1\2\3\4\5\6\7"),
                     MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "has 7 bytes and should have 8"));
    assert_int_equal(PARSE_LEGACY("\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2K\1."), MSP_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "a legacy torch file of a version other than 1001"));
    memcpy(tar + 257, "ustar", 5);
    assert_int_equal(parse_legacy(tar, sizeof(tar), &first, &err), MSP_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "a torch file from before 0.1.10: load and save it again with torch 1.x"));
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

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static void
assert_round_trip(const msp_tensor *t)
{
    const char *path = scratch_path("saved.pt");
    msp_error err;
    msp_tensor back;

    if (msp_pt_save(path, t, &err) != MSP_OK || msp_pt_open(&back, path, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(back.dtype, t->dtype);
    assert_true(msp_tensor_same_shape(&back, t));
    assert_true(msp_tensor_is_contiguous(&back));
    assert_int_equal((uintptr_t)back.data % 8, 0); /* mapped or read, data stands at a multiple of 64 in the file */
    for (int64_t i = 0; i < t->numel; i++)
        assert_memory_equal(msp_tensor_at(&back, i), msp_tensor_at(t, i), msp_dtype_size(t->dtype));
    msp_tensor_release(&back);
}

static void
what_is_saved_is_read_back(void **state)
{
    static unsigned char bytes[4 * 5 * 6 * 16];
    const int64_t shape[] = {4, 5, 6};

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7);
    for (int dtype = 1; dtype < MSP_DTYPE_COUNT; dtype++) {
        for (int32_t ndim = 0; ndim <= 3; ndim++) {
            msp_tensor t;

            assert_int_equal(msp_tensor_view(&t, bytes, (msp_dtype)dtype, ndim, shape, NULL), MSP_OK);
            assert_round_trip(&t);
        }
    }
}

/* Sizes of 0 to 8 bytes in the pickle, and tuples of every length. */
static void
large_sizes_and_many_dimensions_are_saved(void **state)
{
    static const int64_t shape[] = {0, 300, 70000, (int64_t)1 << 40, 1, 1, 1};
    static const float one = 1;
    static int64_t ones[MSP_MAX_NDIM];
    msp_tensor t;

    (void)state;
    for (int32_t ndim = 1; ndim <= 7; ndim++) {
        assert_int_equal(msp_tensor_view(&t, NULL, MSP_F32, ndim, shape, NULL), MSP_OK);
        assert_round_trip(&t);
    }
    for (int i = 0; i < MSP_MAX_NDIM; i++)
        ones[i] = 1;
    assert_int_equal(msp_tensor_view(&t, &one, MSP_F32, MSP_MAX_NDIM, ones, NULL), MSP_OK);
    assert_round_trip(&t);
}

static void
strided_elements_of_every_size_are_saved(void **state)
{
    static unsigned char bytes[6 * 7 * 16];
    const int64_t shape[] = {6, 7};

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 11);
    for (int dtype = 1; dtype < MSP_DTYPE_COUNT; dtype++) {
        msp_tensor t;

        assert_int_equal(msp_tensor_view(&t, bytes, (msp_dtype)dtype, 2, shape, NULL), MSP_OK);
        t.shape[1] = 3; /* every other column */
        t.strides[1] = 2;
        t.numel = 18;
        assert_round_trip(&t);
    }
}

/* Rows that are longer than the gathering buffer go past it. */
static void
long_rows_with_gaps_are_saved(void **state)
{
    static float values[3 * 100000];
    const int64_t shape[] = {3, 100000};
    msp_tensor t;

    (void)state;
    for (size_t i = 0; i < 3 * 100000; i++)
        values[i] = (float)i;
    assert_int_equal(msp_tensor_view(&t, values, MSP_F32, 2, shape, NULL), MSP_OK);
    t.shape[1] = 99999;
    t.numel = 3 * 99999;
    assert_round_trip(&t);
}

static void
strided_tensors_are_saved_contiguous(void **state)
{
    static float values[700 * 500];
    const int64_t shape[] = {700, 500};
    msp_tensor t;

    (void)state;
    for (size_t i = 0; i < 700 * 500; i++)
        values[i] = (float)i;
    assert_int_equal(msp_tensor_view(&t, values, MSP_F32, 2, shape, NULL), MSP_OK);
    t.shape[0] = 500; /* transposed */
    t.shape[1] = 700;
    t.strides[0] = 1;
    t.strides[1] = 500;
    assert_round_trip(&t);
    t.shape[0] = 700; /* the first 300 columns */
    t.shape[1] = 300;
    t.strides[0] = 500;
    t.strides[1] = 1;
    t.numel = 700 * 300;
    assert_round_trip(&t);
    t.strides[0] = 0; /* the first row, again and again */
    assert_round_trip(&t);
}

/* One thread writes while others read, and file and statistics are what each of them alone gives. */
static void
assert_measured_as_alone(const msp_tensor *t)
{
    char alone_path[600], path[600], *alone, *bytes;
    size_t alone_size, size;
    msp_stats stats, expected;

    snprintf(alone_path, sizeof(alone_path), "%s", scratch_path("alone.pt"));
    snprintf(path, sizeof(path), "%s", scratch_path("measured.pt"));
    memset(&stats, 0, sizeof(stats));
    memset(&expected, 0, sizeof(expected));
    msp_stats_compute(&expected, t);
    assert_int_equal(msp_pt_save(alone_path, t, NULL), MSP_OK);
    for (int with_stats = 0; with_stats < 2; with_stats++) {
        assert_int_equal(msp_pt_save_measured(path, t, with_stats ? &stats : NULL, NULL), MSP_OK);
        assert_int_equal(msp_file_read(&alone, &alone_size, alone_path, SIZE_MAX, NULL), MSP_OK);
        assert_int_equal(msp_file_read(&bytes, &size, path, SIZE_MAX, NULL), MSP_OK);
        assert_int_equal(size, alone_size);
        assert_memory_equal(bytes, alone, size);
        msp_free(alone);
        msp_free(bytes);
    }
    assert_memory_equal(&stats, &expected, sizeof(stats));
}

static void
a_tensor_saved_and_measured_at_once_is_the_same(void **state)
{
    const int64_t large[] = {1 << 10, 1000}, small[] = {3, 5}, none[] = {0, 7};
    float *p = malloc(sizeof(float) * (1 << 20));
    msp_tensor t;

    (void)state;
    for (int i = 0; i < 1 << 20; i++)
        p[i] = (float)(i % 1009) - 300.5f;
    assert_int_equal(msp_tensor_view(&t, p, MSP_F32, 2, large, NULL), MSP_OK);
    assert_measured_as_alone(&t);
    t.strides[0] = 1; /* the same memory, turned */
    t.strides[1] = 1 << 10;
    assert_measured_as_alone(&t);
    assert_int_equal(msp_tensor_view(&t, p, MSP_F32, 2, small, NULL), MSP_OK);
    assert_measured_as_alone(&t);
    assert_int_equal(msp_tensor_view(&t, p, MSP_F32, 2, none, NULL), MSP_OK);
    assert_measured_as_alone(&t);
    free(p);
}

static void
a_full_disk_leaves_no_half_of_a_measured_tensor(void **state)
{
    const struct rlimit little = {3 << 20, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    const int64_t shape[] = {1 << 20};
    const char *path = scratch_path("big.pt");
    char *p = calloc(1 << 20, 4);
    msp_tensor t;
    msp_stats stats;
    msp_error err;
    msp_status st;

    (void)state;
    assert_int_equal(msp_tensor_view(&t, p, MSP_F32, 1, shape, NULL), MSP_OK);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    st = msp_pt_save_measured(path, &t, &stats, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(st, MSP_E_IO);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, strerror(EFBIG)));
    assert_int_equal(access(path, F_OK), -1);
    free(p);
}

static void
saving_is_whole_or_nothing(void **state)
{
    const char *path = scratch_path("kept.pt");
    const float one = 1, two = 2;
    struct stat st;
    msp_tensor t;
    msp_error err;
    int64_t live = msp_alloc_live();
    msp_status status;

    (void)state;
    assert_int_equal(msp_tensor_view(&t, &one, MSP_F32, 0, NULL, NULL), MSP_OK);
    assert_int_equal(msp_pt_save(path, &t, NULL), MSP_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    t.data = &two;
    for (int64_t n = 0;; n++) {
        msp_tensor back;

        msp_alloc_fail_after(n);
        status = msp_pt_save(path, &t, &err);
        msp_alloc_fail_after(-1);
        assert_int_equal(msp_alloc_live(), live);
        if (status == MSP_OK)
            break;
        assert_int_equal(status, MSP_E_NOMEM);
        assert_non_null(strstr(err.message, "kept.pt: out of memory"));
        assert_int_equal(msp_pt_open(&back, path, NULL), MSP_OK);
        ASSERT_VALUES(&back, 1);
        msp_tensor_release(&back);
    }
    assert_int_equal(msp_pt_save("/nonexistent/x.pt", &t, &err), MSP_E_IO);
    assert_non_null(strstr(err.message, "/nonexistent/x.pt: cannot create"));
    t.dtype = MSP_DTYPE_NONE;
    assert_int_equal(msp_pt_save(path, &t, &err), MSP_E_INVALID);
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
        TEST(a_view_that_leaves_its_storage_is_refused),
        TEST(extents_that_overflow_are_refused),
        TEST(calls_with_wrong_arguments_are_refused),
        TEST(rarer_forms_of_tensors_are_checked_too),
        TEST(an_ordered_dict_may_be_made_of_pairs),
        TEST(more_than_64_dimensions_are_refused),
        TEST(containers_within_themselves_end),
        TEST(deep_nesting_within_the_limit_is_read),
        TEST(a_name_with_a_zero_byte_is_refused),
        TEST(a_flood_of_tensors_ends_at_the_limit),
        TEST(long_keys_that_are_used_often_end_at_the_limit),
        TEST(long_storage_keys_and_metadata_are_refused),
        TEST(legacy_storages_may_be_parts_of_others),
        TEST(legacy_files_with_missing_or_foreign_parts_are_refused),
        TEST(cut_flipped_and_starved_files_are_errors),
        TEST(a_changed_pickle_is_noticed),
        TEST(what_is_saved_is_read_back),
        TEST(large_sizes_and_many_dimensions_are_saved),
        TEST(strided_elements_of_every_size_are_saved),
        TEST(long_rows_with_gaps_are_saved),
        TEST(strided_tensors_are_saved_contiguous),
        TEST(a_tensor_saved_and_measured_at_once_is_the_same),
        TEST(a_full_disk_leaves_no_half_of_a_measured_tensor),
        TEST(saving_is_whole_or_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
