/* test_pt_save.c - promises of msprobe/tensor.h about saving .pt files. */
#include "tensors.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "core/file.h"
#include "msprobe/stats.h"

static void
assert_same_bytes(const char *a_path, const char *b_path)
{
    size_t a_size, b_size;
    char *a, *b;

    assert_int_equal(msp_file_read(&a, &a_size, a_path, SIZE_MAX, NULL), MSP_OK);
    assert_int_equal(msp_file_read(&b, &b_size, b_path, SIZE_MAX, NULL), MSP_OK);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, a_size);
    msp_free(a);
    msp_free(b);
}

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
    char alone_path[600], path[600];
    msp_stats stats, expected;

    snprintf(alone_path, sizeof(alone_path), "%s", scratch_path("alone.pt"));
    snprintf(path, sizeof(path), "%s", scratch_path("measured.pt"));
    memset(&stats, 0, sizeof(stats));
    memset(&expected, 0, sizeof(expected));
    msp_stats_compute(&expected, t);
    assert_int_equal(msp_pt_save(alone_path, t, NULL), MSP_OK);
    for (int with_stats = 0; with_stats < 2; with_stats++) {
        assert_int_equal(msp_pt_save_measured(path, t, with_stats ? &stats : NULL, NULL), MSP_OK);
        assert_same_bytes(path, alone_path);
    }
    assert_memory_equal(&stats, &expected, sizeof(stats));
}

/* Small files are one write, larger ones several, elements with gaps come in pieces: the bytes are the same. */
static void
the_way_of_writing_leaves_no_trace_in_the_file(void **state)
{
    static const int64_t rows[] = {1, 4095, 4096, 4097, 16383, 16384, 32767, 32768, 70000};
    static float dense[70000 * 4], gaps[70000 * 5];

    (void)state;
    for (int i = 0; i < 70000 * 4; i++)
        dense[i] = gaps[i / 4 * 5 + i % 4] = (float)i;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const int64_t shape[] = {rows[i], 4};
        msp_tensor t;

        assert_int_equal(msp_tensor_view(&t, dense, MSP_F32, 2, shape, NULL), MSP_OK);
        assert_round_trip(&t);
        assert_int_equal(rename(scratch_path("saved.pt"), scratch_path("dense.pt")), 0);
        t.data = gaps;
        t.strides[0] = 5;
        assert_round_trip(&t);
        assert_same_bytes(scratch_path("saved.pt"), scratch_path("dense.pt"));
    }
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
        TEST(what_is_saved_is_read_back),
        TEST(large_sizes_and_many_dimensions_are_saved),
        TEST(strided_elements_of_every_size_are_saved),
        TEST(long_rows_with_gaps_are_saved),
        TEST(strided_tensors_are_saved_contiguous),
        TEST(the_way_of_writing_leaves_no_trace_in_the_file),
        TEST(a_tensor_saved_and_measured_at_once_is_the_same),
        TEST(a_full_disk_leaves_no_half_of_a_measured_tensor),
        TEST(saving_is_whole_or_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
