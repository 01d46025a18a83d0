/* test_zip_out.c - promises of report/write/zip_out.h, read back with io/zip.h, which was written by other rules. */
#include "tables.h"
#include "core/alloc.h"
#include "io/zip.h"
#include "report/write/zip_out.h"

static char *
pseudo_text(size_t n)
{
    char *p = malloc(n + 1);
    uint32_t state = 12345;

    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        p[i] = "<c r=\"A1\"><v>0123456789</v></c>"[state >> 27];
    }
    p[n] = '\0';
    return p;
}

typedef struct part {
    const char *name, *p;
    size_t n;
} part;

static const char *
write_archive(const char *name, const part *parts, size_t count, int threads, uint64_t zip64_from)
{
    const char *path = scratch_path(name);
    msp_file file;
    msp_zip_out *z;

    assert_int_equal(msp_file_create(&file, path, 0640, NULL), MSP_OK);
    assert_int_equal(msp_zip_out_open(&z, &file, threads, NULL), MSP_OK);
    if (zip64_from > 0)
        msp_zip_out_zip64_from(z, zip64_from);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(msp_zip_out_begin(z, parts[i].name, NULL), MSP_OK);
        for (size_t at = 0; at < parts[i].n;) { /* in pieces that fit no block */
            size_t n = parts[i].n - at < 70001 ? parts[i].n - at : 70001;

            assert_int_equal(msp_zip_out_write(z, parts[i].p + at, n, NULL), MSP_OK);
            at += n;
        }
        assert_int_equal(msp_zip_out_end(z, NULL), MSP_OK);
    }
    assert_int_equal(msp_zip_out_finish(z, NULL), MSP_OK);
    msp_zip_out_close(z);
    assert_int_equal(msp_file_commit(&file, NULL), MSP_OK);
    return path;
}

static void
assert_archive_holds(const char *path, const part *parts, size_t count)
{
    msp_mapping map;
    msp_error err;
    msp_zip z;

    assert_int_equal(msp_map_open(&map, path, NULL), MSP_OK);
    if (msp_zip_open(&z, map.addr, map.size, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(z.count, count);
    for (size_t i = 0; i < count; i++) {
        char *text;

        assert_int_equal(z.entries[i].size, parts[i].n);
        if (msp_zip_read(&text, &z, &z.entries[i], SIZE_MAX, &err) != MSP_OK) /* checks the CRC too */
            fail_msg("%s: %s", parts[i].name, err.message);
        assert_memory_equal(text, parts[i].p, parts[i].n);
        msp_free(text);
        assert_ptr_equal(msp_zip_find(&z, msp_str_of(parts[i].name)), &z.entries[i]);
    }
    msp_zip_close(&z);
    msp_map_close(&map);
}

static void
entries_of_every_size_come_back(void **state)
{
    const size_t block = 128 * 1024, batch = 8 * 128 * 1024;
    char *text = pseudo_text(3 * batch + 5);
    const part parts[] = {
        {"empty", text, 0},
        {"one", text, 1},
        {"block", text, block},
        {"block+1", text, block + 1},
        {"batch-1", text, batch - 1},
        {"batch", text, batch},
        {"batch+1", text, batch + 1},
        {"two", text, 2 * batch},
        {"large", text, 3 * batch + 5},
    };

    (void)state;
    assert_archive_holds(write_archive("sizes.zip", parts, 9, 0, 0), parts, 9);
    assert_archive_holds(write_archive("none.zip", parts, 0, 0, 0), parts, 0);
    free(text);
}

static void
large_entries_take_the_zip64_form(void **state)
{
    char *text = pseudo_text(300000);
    const part parts[] = {{"small", text, 10}, {"large", text, 300000}, {"after", text, 20}};

    (void)state;
    assert_archive_holds(write_archive("zip64.zip", parts, 3, 0, 50000), parts, 3);
    assert_archive_holds(write_archive("all64.zip", parts, 3, 0, 1), parts, 3);
    free(text);
}

static void
the_bytes_do_not_depend_on_the_number_of_threads(void **state)
{
    char *text = pseudo_text(5000000), *bytes[2];
    const part parts[] = {{"x", text, 5000000}};
    size_t size[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *path = write_archive("threads.zip", parts, 1, i == 0 ? 1 : 4, 0);

        assert_int_equal(msp_file_read(&bytes[i], &size[i], path, SIZE_MAX - 1, NULL), MSP_OK);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    msp_free(bytes[0]);
    msp_free(bytes[1]);
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(entries_of_every_size_come_back),
        TEST(large_entries_take_the_zip64_form),
        TEST(the_bytes_do_not_depend_on_the_number_of_threads),
    };

    return cmocka_run_group_tests(tests, NULL, stop_pool_and_remove_scratch);
}
