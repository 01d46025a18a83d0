/* test_pt_made.c - .pt files that no version of torch writes: pickles and legacy files made by hand. */
#include "tensors.h"
#include "core/file.h"
#include "core/str.h"
#include "io/tensor_file.h"
#include "io/zip.h"

/* ---- hand-made pickles ------------------------------------------------------------------------------------------ */

#define ADD(b, literal) msp_buf_add(b, literal, sizeof(literal) - 1)
#define STORAGE(class, numel)                       \
    "(X\7\0\0\0storagectorch\n" class "\nX\1\0\0\0" \
                                      "0X\3\0\0\0cpu" numel "tQ"
#define V2(storage, rest) "\x80\2ctorch._utils\n_rebuild_tensor_v2\n(" storage rest "\x89NtR."

static const char *byte_order; /* what the archives say; NULL: nothing, which is little */

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
    if (byte_order != NULL) {
        assert_int_equal(msp_zip_writer_begin(&w, MSP_STR("x/byteorder"), strlen(byte_order), 64, NULL), MSP_OK);
        assert_int_equal(msp_zip_writer_data(&w, byte_order, strlen(byte_order), NULL), MSP_OK);
        assert_int_equal(msp_zip_writer_end(&w, NULL), MSP_OK);
    }
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

/* The whole storage as a tensor of this type: what torch writes for types without a storage of their own. */
#define WHOLE(dtype, numel)                                                            \
    "ctorch._utils\n_rebuild_tensor_v3\n(" STORAGE("FloatStorage", "K\6") "K\0K" numel \
                                                                          "\x85K\1\x85\x89Nctorch\n" dtype "\ntR"

static void
bytes_that_are_turned_round_belong_to_numbers_of_one_size(void **state)
{
    const char alike[] = "\x80\2(" WHOLE("float32", "\6") WHOLE("int32", "\6") WHOLE("complex64", "\3") "t.";
    const uint16_t one = 1;
    msp_tensor_file *f;

    (void)state;
    byte_order = *(const unsigned char *)&one == 1 ? "big" : "little"; /* the other one */
    assert_int_equal(parse_pickle(&f, alike, sizeof(alike) - 1, NULL), MSP_OK);
    assert_int_equal(msp_tensor_file_count(f), 3);
    assert_int_equal(((const uint32_t *)msp_tensor_file_at(f, 1)->data)[1], 0x0000803f);
    msp_tensor_file_close(f);
    ASSERT_MADE("\x80\2(" WHOLE("float32", "\6") WHOLE("float16", "\x0c") "t.", MSP_E_UNSUPPORTED,
                "storage '0' is big-endian and has tensors of different element sizes");
    byte_order = NULL;
    ASSERT_MADE("\x80\2(" WHOLE("float32", "\6") WHOLE("float16", "\x0c") "t.", MSP_OK, "");
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bytes_that_are_turned_round_belong_to_numbers_of_one_size),
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
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
