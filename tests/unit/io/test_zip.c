/* test_zip.c - promises of io/zip.h. The archives in tests/data/io were written by Python's zipfile. */
#include "hostile.h"
#include <sys/types.h>
#include "io/bytes.h"
#include "io/zip.h"

/* Under its whole name, in every two parts of it, and not under a longer one. */
static void
assert_found(const msp_zip *z, const msp_zip_entry *e)
{
    msp_str name = msp_zip_name(e);

    assert_ptr_equal(msp_zip_find(z, name), e);
    for (size_t cut = 0; cut <= name.len && cut < 20; cut++) {
        const msp_str parts[] = {{name.p, cut}, {name.p + cut, name.len - cut}, {"\377", 1}};

        assert_ptr_equal(msp_zip_find_parts(z, parts, 2), e);
        assert_ptr_not_equal(msp_zip_find_parts(z, parts, 3), e);
    }
}

static msp_status
read_all(const void *p, size_t size)
{
    msp_zip z;
    msp_status st = msp_zip_open(&z, p, size, NULL);

    for (size_t i = 0; i < z.count; i++) {
        char *data;
        msp_status one = msp_zip_read(&data, &z, &z.entries[i], SIZE_MAX, NULL);

        if (st == MSP_OK)
            st = one;
        msp_free(data);
        assert_found(&z, &z.entries[i]);
    }
    msp_zip_close(&z);
    return st;
}

static void
assert_entry(const msp_zip *z, const char *name, const char *expected, size_t size)
{
    const msp_zip_entry *e = msp_zip_find(z, msp_str_of(name));
    msp_error err;
    char *data;

    assert_non_null(e);
    if (msp_zip_read(&data, z, e, size, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(e->size, size);
    assert_memory_equal(data, expected, size);
    assert_int_equal(data[size], 0);
    msp_free(data);
}

static void
assert_sample(const char *name)
{
    char abc[301];
    size_t size;
    char *p = test_data(name, &size);
    msp_error err;
    msp_zip z;

    for (int i = 0; i < 300; i++)
        abc[i] = "abc"[i % 3];
    if (msp_zip_open(&z, p, size, &err) != MSP_OK)
        fail_msg("%s: %s", name, err.message);
    assert_int_equal(z.count, 3);
    assert_entry(&z, "dir/hello.txt", "hello, world", 12);
    assert_entry(&z, "dir/empty", "", 0);
    assert_entry(&z, "a", abc, 300);
    assert_null(msp_zip_find(&z, MSP_STR("dir/hello.tx")));
    assert_null(msp_zip_find(&z, MSP_STR("")));
    assert_null(msp_zip_find(&z, MSP_STR("zzz")));
    msp_zip_close(&z);
    msp_free(p);
}

static void
archives_of_every_shape_are_read(void **state)
{
    (void)state;
    assert_sample("io/stored.zip");
    assert_sample("io/deflated.zip");
    assert_sample("io/comment.zip");
    assert_sample("io/prefixed.zip");
    assert_sample("io/zip64.zip");
    assert_sample("io/zip64_prefixed.zip");
}

static void
an_archive_without_entries_is_valid(void **state)
{
    size_t size;
    char *p = test_data("io/nothing.zip", &size);
    msp_zip z;

    (void)state;
    assert_int_equal(msp_zip_open(&z, p, size, NULL), MSP_OK);
    assert_int_equal(z.count, 0);
    assert_null(msp_zip_find(&z, MSP_STR("a")));
    msp_zip_close(&z);
    msp_free(p);
}

static void
assert_first_entry_refused(const char *name, const char *message)
{
    size_t size;
    char *p = test_data(name, &size), *data;
    msp_error err;
    msp_zip z;

    assert_int_equal(msp_zip_open(&z, p, size, NULL), MSP_OK);
    assert_int_equal(msp_zip_read(&data, &z, &z.entries[0], SIZE_MAX, &err), MSP_E_UNSUPPORTED);
    assert_string_equal(err.message, message);
    assert_null(data);
    msp_zip_close(&z);
    msp_free(p);
}

static void
other_methods_and_encryption_are_named(void **state)
{
    (void)state;
    assert_first_entry_refused("io/bzip2.zip",
                               "zip: 'dir/hello.txt' is compressed with method 12; only deflate is read");
    assert_first_entry_refused("io/encrypted.zip", "zip: 'secret' is encrypted");
}

static void
an_entry_beyond_the_limit_is_not_inflated(void **state)
{
    size_t size;
    char *p = test_data("io/deflated.zip", &size), *data;
    msp_error err;
    msp_zip z;

    (void)state;
    assert_int_equal(msp_zip_open(&z, p, size, NULL), MSP_OK);
    assert_int_equal(msp_zip_read(&data, &z, msp_zip_find(&z, MSP_STR("a")), 299, &err), MSP_E_LIMIT);
    assert_string_equal(err.message, "zip: 'a' has 300 bytes, more than the 299 allowed here");
    msp_zip_close(&z);
    msp_free(p);
}

/* Give the first entry another size in directory and see what reading it says. */
static void
a_size_that_deflate_cannot_reach_is_refused_before_allocating(void **state)
{
    size_t size;
    char *p = test_data("io/deflated.zip", &size), *data, *central;
    msp_error err;
    msp_zip z;

    (void)state;
    central = memmem(p, size, "PK\1\2", 4);
    store_u32(central + 24, 1u << 31);
    assert_int_equal(msp_zip_open(&z, p, size, NULL), MSP_OK);
    msp_alloc_fail_after(0);
    assert_int_equal(msp_zip_read(&data, &z, &z.entries[0], SIZE_MAX, &err), MSP_E_FORMAT);
    msp_alloc_fail_after(-1);
    assert_string_equal(err.message,
                        "zip: 'dir/hello.txt' promises 2147483648 bytes out of 14, more than deflate can pack");
    msp_zip_close(&z);
    msp_free(p);
}

static void
damage_is_found_by_the_checksum(void **state)
{
    size_t size;
    char *p = test_data("io/stored.zip", &size), *data;
    msp_error err;
    msp_zip z;

    (void)state;
    *(char *)memmem(p, size, "hello, world", 12) = 'j';
    assert_int_equal(msp_zip_open(&z, p, size, NULL), MSP_OK);
    assert_int_equal(msp_zip_read(&data, &z, &z.entries[0], SIZE_MAX, &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "'dir/hello.txt' is damaged: CRC-32"));
    msp_zip_close(&z);
    msp_free(p);
}

static void
overlapping_entries_are_refused(void **state)
{
    size_t size;
    char *p = test_data("io/stored.zip", &size), *central;
    msp_error err;
    msp_zip z;

    (void)state;
    central = memmem(p, size, "PK\1\2", 4);
    store_u32(central + 20, 200); /* both sizes reach into the next entry */
    store_u32(central + 24, 200);
    assert_int_equal(msp_zip_open(&z, p, size, &err), MSP_E_FORMAT);
    assert_string_equal(err.message, "zip: the entry at byte 0 (200 bytes) overlaps what follows it");
    msp_free(p);
}

static void
two_entries_of_one_name_are_refused(void **state)
{
    size_t size;
    char *p = test_data("io/stored.zip", &size), *at;
    msp_error err;
    msp_zip z;

    (void)state;
    for (at = p; (at = memmem(at, size - (size_t)(at - p), "dir/empty", 9)) != NULL; at++)
        memcpy(at, "\xff/empty/x", 9);
    assert_int_equal(msp_zip_open(&z, p, size, &err), MSP_OK);
    msp_zip_close(&z);
    at = memmem(p, size, "PK\1\2", 4); /* the third entry is "a": name the second "a" too */
    at = memmem(at + 4, size - (size_t)(at + 4 - p), "PK\1\2", 4);
    store_u16(at + 28, 1);
    store_u16(at + 32, 8); /* the rest of the name becomes its comment */
    at[46] = 'a';
    assert_int_equal(msp_zip_open(&z, p, size, &err), MSP_E_FORMAT);
    assert_string_equal(err.message, "zip: two entries have the name 'a'");
    msp_free(p);
}

static void
a_local_header_that_contradicts_the_directory_is_refused(void **state)
{
    size_t size;
    char *p = test_data("io/stored.zip", &size), *data;
    msp_error err;
    msp_zip z;

    (void)state;
    memcpy(memmem(p, size, "dir/hello.txt", 13), "dir/jello.txt", 13);
    assert_int_equal(msp_zip_open(&z, p, size, NULL), MSP_OK);
    assert_int_equal(msp_zip_read(&data, &z, &z.entries[0], SIZE_MAX, &err), MSP_E_FORMAT);
    assert_string_equal(err.message, "zip: the header at byte 0 contradicts the directory's 'dir/hello.txt'");
    msp_zip_close(&z);
    msp_free(p);
}

static void
cut_flipped_and_starved_archives_are_errors(void **state)
{
    const char *names[] = {"io/stored.zip", "io/deflated.zip", "io/comment.zip", "io/prefixed.zip", "io/zip64.zip"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t size;
        char *p = test_data(names[i], &size);

        assert_every_cut_fails(read_all, p, size, size);
        assert_true(flip_every_bit(read_all, p, size) > size);
        fail_every_allocation(read_all, p, size);
        msp_free(p);
    }
}

/* Write three entries and give back the file's bytes, or NULL with the status in *st. */
static char *
write_sample(size_t *size, bool zip64, const char *big, size_t big_size, msp_status *st)
{
    const char *path = scratch_path("written.zip");
    msp_file f = MSP_FILE_NONE;
    msp_zip_writer w;
    char *p = NULL;

    msp_zip_writer_init(&w, &f);
    w.zip64_force = zip64;
    *st = msp_file_create(&f, path, 0640, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_begin(&w, MSP_STR("first"), 5, 64, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_data(&w, "hel", 3, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_data(&w, "lo", 2, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_end(&w, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_begin(&w, MSP_STR("dir/big"), big_size, 64, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_data(&w, big, big_size, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_end(&w, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_begin(&w, MSP_STR("empty"), 0, 1, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_end(&w, NULL);
    if (*st == MSP_OK)
        *st = msp_zip_writer_finish(&w, NULL);
    msp_zip_writer_release(&w);
    if (*st == MSP_OK)
        *st = msp_file_commit(&f, NULL);
    msp_file_abandon(&f);
    if (*st == MSP_OK)
        *st = msp_file_read(&p, size, path, 64 << 20, NULL);
    return p;
}

static void
what_is_written_is_read_back(void **state)
{
    size_t big_size = (3 << 20) + 17, size;
    char *big = malloc(big_size);

    (void)state;
    for (size_t i = 0; i < big_size; i++)
        big[i] = (char)(i * 2654435761u >> 11);
    for (int zip64 = 0; zip64 < 2; zip64++) {
        msp_status st;
        char *p = write_sample(&size, zip64, big, big_size, &st);
        msp_str data;
        msp_zip z;

        assert_int_equal(st, MSP_OK);
        assert_int_equal(msp_zip_open(&z, p, size, NULL), MSP_OK);
        assert_int_equal(z.count, 3);
        assert_entry(&z, "first", "hello", 5);
        assert_entry(&z, "dir/big", big, big_size);
        assert_entry(&z, "empty", "", 0);
        assert_int_equal(msp_zip_packed(&data, &z, &z.entries[1], NULL), MSP_OK);
        assert_int_equal((data.p - p) % 64, 0);
        assert_true(z.entries[1].crc != 0);
        msp_zip_close(&z);
        msp_free(p);
    }
    free(big);
}

static void
a_writer_without_memory_says_so(void **state)
{
    msp_status st = MSP_E_NOMEM;
    int64_t live = msp_alloc_live();

    (void)state;
    for (int64_t n = 0; st != MSP_OK; n++) {
        size_t size;
        char *p;

        msp_alloc_fail_after(n);
        p = write_sample(&size, false, "0123456789", 10, &st);
        msp_alloc_fail_after(-1);
        msp_free(p);
        if (st != MSP_OK)
            assert_int_equal(st, MSP_E_NOMEM);
        assert_int_equal(msp_alloc_live(), live);
    }
}

/* More entries than are looked through one by one, in an order that is none. */
static void
entries_are_found_whatever_their_order(void **state)
{
    const char *path = scratch_path("many.zip");
    msp_file f = MSP_FILE_NONE;
    msp_zip_writer w;
    char *p, name[16];
    size_t size;
    msp_zip z;

    (void)state;
    assert_int_equal(msp_file_create(&f, path, 0640, NULL), MSP_OK);
    msp_zip_writer_init(&w, &f);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "e%u", i * 7919 % 1000);
        assert_int_equal(msp_zip_writer_begin(&w, msp_str_of(name), strlen(name), 1, NULL), MSP_OK);
        assert_int_equal(msp_zip_writer_data(&w, name, strlen(name), NULL), MSP_OK);
        assert_int_equal(msp_zip_writer_end(&w, NULL), MSP_OK);
    }
    assert_int_equal(msp_zip_writer_finish(&w, NULL), MSP_OK);
    msp_zip_writer_release(&w);
    assert_int_equal(msp_file_commit(&f, NULL), MSP_OK);
    assert_int_equal(msp_file_read(&p, &size, path, 1 << 20, NULL), MSP_OK);
    assert_int_equal(msp_zip_open(&z, p, size, NULL), MSP_OK);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "e%u", i);
        assert_entry(&z, name, name, strlen(name));
    }
    msp_zip_close(&z);
    msp_free(p);
}

/* Put bytes at a place far beyond what was written before: the file has a hole there and takes no space. */
static void
put(FILE *f, uint64_t at, const void *p, size_t n)
{
    assert_int_equal(fseeko(f, (off_t)at, SEEK_SET), 0);
    assert_int_equal(fwrite(p, 1, n, f), n);
}

/* Local or central header of a stored entry whose sizes and offset stand in a ZIP64 field; returns its length. */
static size_t
zip64_header(char *h, bool central, const char *name, uint64_t size, uint64_t at)
{
    size_t fixed = central ? 46 : 30, n = strlen(name), extra = central ? 28 : 20;

    memset(h, 0, fixed + n + extra);
    memcpy(h, central ? "PK\1\2" : "PK\3\4", 4);
    memset(h + (central ? 20 : 18), 0xff, 8); /* both sizes */
    if (central)
        memset(h + 42, 0xff, 4);
    store_u16(h + (central ? 28 : 26), (uint16_t)n);
    store_u16(h + (central ? 30 : 28), (uint16_t)extra);
    memcpy(h + fixed, name, n);
    h += fixed + n;
    store_u16(h, 1);
    store_u16(h + 2, (uint16_t)(extra - 4));
    store_u64(h + 4, size);
    store_u64(h + 12, size);
    if (central)
        store_u64(h + 20, at);
    return fixed + n + extra;
}

static void
entries_beyond_4_gib_are_found(void **state)
{
    const uint64_t big = ((uint64_t)9 << 29) + 5; /* 4.5 GiB */
    const char *path = scratch_path("huge.zip");
    char h[256] = {0};
    uint64_t at, after, directory;
    FILE *f = fopen(path, "wb");
    msp_mapping map;
    msp_error err;
    msp_str data;
    msp_zip z;

    (void)state;
    assert_non_null(f);
    at = zip64_header(h, false, "big", big, 0);
    put(f, 0, h, at);
    after = at + big;
    put(f, after - 1, "x", 1);
    at = after + zip64_header(h, false, "after", 5, 0);
    put(f, after, h, at - after);
    put(f, at, "hello", 5);
    directory = at += 5;
    at += zip64_header(h, true, "big", big, 0);
    put(f, directory, h, at - directory);
    put(f, at, h, zip64_header(h, true, "after", 5, after));
    at += zip64_header(h, true, "after", 5, after);
    memset(h, 0, sizeof(h));
    memcpy(h, "PK\6\6\x2c", 5);
    store_u64(h + 24, 2);
    store_u64(h + 32, 2);
    store_u64(h + 40, at - directory);
    store_u64(h + 48, directory);
    memcpy(h + 56, "PK\6\7", 4);
    store_u64(h + 64, at);
    store_u32(h + 72, 1);
    memcpy(h + 76, "PK\5\6\0\0\0\0\377\377\377\377\377\377\377\377\377\377\377\377\0\0", 22);
    put(f, at, h, 98);
    assert_int_equal(fclose(f), 0);

    assert_int_equal(msp_map_open(&map, path, NULL), MSP_OK);
    if (msp_zip_open(&z, map.addr, map.size, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_entry(&z, "after", "hello", 5);
    assert_int_equal(msp_zip_packed(&data, &z, msp_zip_find(&z, MSP_STR("big")), NULL), MSP_OK);
    assert_true(data.len == big);
    assert_int_equal(data.p[big - 1], 'x');
    assert_int_equal(data.p[big - 2], 0);
    msp_zip_close(&z);
    msp_map_close(&map);
    remove(path);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(archives_of_every_shape_are_read),
        TEST(an_archive_without_entries_is_valid),
        TEST(other_methods_and_encryption_are_named),
        TEST(an_entry_beyond_the_limit_is_not_inflated),
        TEST(a_size_that_deflate_cannot_reach_is_refused_before_allocating),
        TEST(damage_is_found_by_the_checksum),
        TEST(overlapping_entries_are_refused),
        TEST(two_entries_of_one_name_are_refused),
        TEST(a_local_header_that_contradicts_the_directory_is_refused),
        TEST(cut_flipped_and_starved_archives_are_errors),
        TEST(entries_are_found_whatever_their_order),
        TEST(entries_beyond_4_gib_are_found),
        TEST(what_is_written_is_read_back),
        TEST(a_writer_without_memory_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
