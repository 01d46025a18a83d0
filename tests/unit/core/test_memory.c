/*
 * test_memory.c - the promise of every reader: no more memory than the input's size plus a constant.
 *
 * Inputs are what costs most per byte in each format. The constant is made small for these tests, 16 MiB, and the
 * inputs larger than it, so that a reader that takes twice the size is caught as well as one that takes twenty times.
 */
#include "unit.h"
#include <zlib.h>
#include "collect/record.h"
#include "core/alloc.h"
#include "core/str.h"
#include "dump/dump_read.h"
#include "dump/legacy.h"
#include "io/tensor_file.h"
#include "io/zip.h"
#include "report/read/table_read.h"
#include "text/yaml.h"

enum { EXTRA = 16 << 20, SIZE = 18 << 20 };

typedef msp_status reader(const char *p, size_t size, msp_error *err);

/* The reader's status, after its peak was found to be what was promised. */
static msp_status
measured(reader *read, const char *p, size_t size, msp_error *err)
{
    msp_status st;
    int64_t peak;

#if defined(__SANITIZE_THREAD__)
    skip(); /* one thread, and minutes of it: there is nothing for ThreadSanitizer to see */
#endif
    msp_alloc_meter_start();
    st = read(p, size, err);
    peak = msp_alloc_meter_stop();
    if (peak > (int64_t)size + EXTRA)
        fail_msg("%lld bytes for an input of %zu that begins with \"%.20s\"", (long long)peak, size, p);
    return st;
}

/* head, then as many units as SIZE holds, the last without its comma, then tail. Keep it with msp_buf_release(). */
static msp_buf
flood(const char *head, const char *unit, const char *tail)
{
    size_t n = strlen(unit), all = SIZE / n * n, done = n;
    msp_buf b = {0};
    char *p;

    msp_buf_text(&b, head);
    p = msp_buf_room(&b, all);
    assert_non_null(p);
    memcpy(p, unit, n);
    for (; done < all; done *= 2)
        memcpy(p + done, p, done < all - done ? done : all - done);
    b.len += all - (unit[n - 1] == ',');
    msp_buf_text(&b, tail);
    return b;
}

static msp_status
read_flood(reader *read, const char *head, const char *unit, const char *tail, msp_error *err)
{
    msp_buf b = flood(head, unit, tail);
    msp_status st = measured(read, b.p, b.len, err);

    msp_buf_release(&b);
    return st;
}

/* ---- JSON and YAML ---------------------------------------------------------------------------------------------- */

static msp_status
read_json(const char *p, size_t size, msp_error *err)
{
    msp_json_doc doc;
    msp_status st = msp_json_parse(&doc, p, size, err);

    msp_json_doc_release(&doc);
    return st;
}

static msp_status
read_cut_json(const char *p, size_t size, msp_error *err)
{
    msp_json_doc doc;
    msp_status st = msp_json_parse_recover(&doc, p, size, 1, err);

    msp_json_doc_release(&doc);
    return st;
}

static void
json_of_tiny_values_is_refused_with_its_place(void **state)
{
    static const char *const floods[][3] = {
        {"[", "0,", "]"},     {"[", "[],", "]"},      {"[", "{},", "]"},        {"{", "\"\":0,", "}"},
        {"[", "\"\",", "]"},  {"[", "\"\\n\",", "]"}, {"[[[[", "[0],", "]]]]"}, {"[", "{\"\":\"\\t\"},", "]"},
        {"[0", ",\n0.5", ""},
    };
    msp_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
        assert_int_equal(read_flood(read_json, floods[i][0], floods[i][1], floods[i][2], &err), MSP_E_LIMIT);
        assert_int_equal(read_flood(read_cut_json, floods[i][0], floods[i][1], "", &err), MSP_E_LIMIT);
        assert_non_null(strstr(err.message, "the values up to here take more memory than the size of the text"));
    }
    assert_memory_equal(err.message, "line ", 5);
    assert_non_null(strstr(err.message, "(byte "));
}

static void
json_of_long_values_is_read_whatever_its_size(void **state)
{
    msp_error err;

    (void)state;
    assert_int_equal(read_flood(read_json, "\"", "\\u4e00", "\"", &err), MSP_OK);
    assert_int_equal(read_flood(read_json, "[", "\"a text of usual length, as stacks and names have\",", "]", &err),
                     MSP_OK);
    assert_int_equal(read_flood(read_json, "{",
                                "\"Module.layers.0.mlp.Linear.forward.0\": \"Module.layers.0.mlp.MLP.forward.0\",\n ",
                                "\"\":0}", &err),
                     MSP_OK);
    assert_int_equal(read_flood(read_json, "[", "                            0.12345678,", "]", &err), MSP_OK);
    assert_int_equal(read_flood(read_json, "", " ", "0", &err), MSP_OK);
}

static void
a_dense_list_of_a_million_numbers_is_fine(void **state)
{
    msp_buf b = {0};
    msp_error err;

    (void)state;
    msp_reader_extra_set(0);
    msp_buf_text(&b, "[0");
    for (int i = 0; i < 1000000; i++)
        msp_buf_text(&b, ",1");
    msp_buf_text(&b, "]");
    if (read_json(b.p, b.len, &err) != MSP_OK)
        fail_msg("%s", err.message);
    msp_reader_extra_set(EXTRA);
    msp_buf_release(&b);
}

static msp_status
read_yaml(const char *p, size_t size, msp_error *err)
{
    msp_json_doc doc;
    msp_status st = msp_yaml_parse(&doc, p, size, err);

    msp_json_doc_release(&doc);
    return st;
}

static void
yaml_of_tiny_values_is_refused_with_its_place(void **state)
{
    static const char *const floods[][3] = {
        {"", "- a\n", ""}, {"", "-\n", ""}, {"[", "a,", "]"}, {"[", "{},", "]"}, {"", "a: b\n", ""}, {"", "? a\n", ""},
    };
    msp_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
        assert_int_equal(read_flood(read_yaml, floods[i][0], floods[i][1], floods[i][2], &err), MSP_E_LIMIT);
        assert_memory_equal(err.message, "line ", 5);
        assert_non_null(strstr(err.message, "the values up to here take more memory than the size of the text"));
    }
    assert_int_equal(read_flood(read_yaml, "", "a long line of text ", "", &err), MSP_OK);
}

static void
yaml_directives_are_counted(void **state)
{
    msp_buf b = {0};
    msp_error err;

    (void)state;
    msp_buf_text(&b, "a: 1\n...\n");
    for (int i = 0; i < 101; i++)
        msp_buf_printf(&b, "%%TAG !t%d! x\n", i);
    msp_buf_text(&b, "---\nb: 2\n");
    assert_int_equal(read_yaml(b.p, b.len, &err), MSP_E_LIMIT);
    assert_string_equal(err.message, "line 103, column 1: more than 100 %TAG directives");
    msp_buf_release(&b);
}

/* ---- tensor files ----------------------------------------------------------------------------------------------- */

static msp_status
read_tensors(const char *p, size_t size, msp_error *err)
{
    msp_tensor_file *f;
    msp_status st = msp_tensor_file_parse(&f, p, size, err);

    msp_tensor_file_close(f);
    return st;
}

static void
npy_takes_one_copy_at_most(void **state)
{
    char *p = calloc(1, SIZE);
    msp_error err;
    int n;

    (void)state;
    n = snprintf(p, SIZE, "\x93NUMPY\x01%cv%c{'descr': '>f4', 'fortran_order': True, 'shape': (2, %d)}", 0, 0,
                 SIZE / 16);
    p[8] = (char)(n - 10);
    assert_int_equal(measured(read_tensors, p, SIZE, &err), MSP_OK);

    memset(p + 12, ' ', SIZE - 12); /* a header as long as the file */
    memcpy(p, "\x93NUMPY\x02\0", 8);
    memcpy(p + 8, (const uint32_t[]){SIZE - 12}, 4);
    assert_int_equal(measured(read_tensors, p, SIZE, &err), MSP_E_FORMAT);
    free(p);
}

static void
pickles_of_tiny_values_are_refused(void **state)
{
    static const char *const floods[] = {"(",  "]",  "}",  "N",   ")",       "K\1q\1",
                                         "(t", "(l", "]a", "]}e", "K\1\x85", "Nr\1\1\1\0"};
    msp_error err;
    msp_status st;

    (void)state;
    for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
        st = read_flood(read_tensors, "\x80\2](", floods[i], ".", &err);
        assert_true(st == MSP_E_LIMIT || st == MSP_E_FORMAT);
        if (i < 5)
            assert_int_equal(st, MSP_E_LIMIT);
        assert_non_null(strstr(err.message, "pickle byte "));
    }
}

typedef struct archive {
    msp_buf file, directory;
    unsigned count;
} archive;

static void
put_number(msp_buf *b, uint64_t v, int width)
{
    char bytes[16];

    for (int i = 0; i < width; i++, v = v == UINT64_MAX ? v : v >> 8)
        bytes[i] = (char)v;
    msp_buf_add(b, bytes, (size_t)width);
}

/* The fields that a local and a central header have in common. */
static void
put_fields(msp_buf *b, int method, size_t packed, size_t size, size_t name_len)
{
    put_number(b, 20, 2);
    put_number(b, 0, 2);
    put_number(b, (unsigned)method, 2);
    put_number(b, 0, 8); /* time, date and an unknown CRC */
    put_number(b, packed, 4);
    put_number(b, size, 4);
    put_number(b, name_len, 2);
    put_number(b, 0, 2);
}

static void
put_entry(archive *a, const char *name, int method, const void *packed, size_t packed_size, size_t size)
{
    size_t at = a->file.len;

    msp_buf_text(&a->file, "PK\3\4");
    put_fields(&a->file, method, packed_size, size, strlen(name));
    msp_buf_text(&a->file, name);
    msp_buf_add(&a->file, packed, packed_size);
    msp_buf_text(&a->directory, "PK\1\2");
    put_number(&a->directory, 20, 2);
    put_fields(&a->directory, method, packed_size, size, strlen(name));
    put_number(&a->directory, 0, 10);
    put_number(&a->directory, at, 4);
    msp_buf_text(&a->directory, name);
    a->count++;
}

/* The directory and the ZIP64 end records that many entries need. */
static void
finish(archive *a)
{
    size_t at = a->file.len, end;

    msp_buf_add(&a->file, a->directory.p, a->directory.len);
    end = a->file.len;
    msp_buf_text(&a->file, "PK\6\6");
    put_number(&a->file, 44, 8);
    put_number(&a->file, 45 | 45 << 16, 4);
    put_number(&a->file, 0, 8);
    put_number(&a->file, a->count, 8);
    put_number(&a->file, a->count, 8);
    put_number(&a->file, a->directory.len, 8);
    put_number(&a->file, at, 8);
    msp_buf_text(&a->file, "PK\6\7");
    put_number(&a->file, 0, 4);
    put_number(&a->file, end, 8);
    put_number(&a->file, 1, 4);
    msp_buf_text(&a->file, "PK\5\6");
    put_number(&a->file, 0, 4);
    put_number(&a->file, UINT64_MAX, 12);
    put_number(&a->file, 0, 2);
    assert_false(a->file.failed);
}

static void
release(archive *a)
{
    msp_buf_release(&a->file);
    msp_buf_release(&a->directory);
}

/* size times the byte c, deflated. */
static msp_buf
deflated(char c, size_t size)
{
    char *plain = malloc(size);
    z_stream s = {0};
    msp_buf b = {0};

    memset(plain, c, size);
    assert_int_equal(deflateInit2(&s, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    s.next_in = (unsigned char *)plain;
    s.avail_in = (unsigned)size;
    s.next_out = (unsigned char *)msp_buf_room(&b, size / 100 + 1024);
    s.avail_out = (unsigned)(size / 100 + 1024);
    assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
    b.len = s.total_out;
    deflateEnd(&s);
    free(plain);
    return b;
}

/* torch.ones(1): what torch.save() writes into data.pkl. */
static const char ONE[] = "\x80\2ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
                          "X\1\0\0\0"
                          "0X\3\0\0\0cpuK\1tQK\0K\1\x85K\1\x85\x89"
                          "ccollections\nOrderedDict\n)RtR.";

static void
archives_of_tiny_entries_take_less_than_they_have(void **state)
{
    archive a = {0};
    msp_error err;
    char name[8];

    (void)state;
    put_entry(&a, "x/data.pkl", 0, ONE, sizeof(ONE) - 1, sizeof(ONE) - 1);
    put_entry(&a, "x/data/0", 0, "\0\0\0\0", 4, 4);
    while (a.file.len + a.directory.len < SIZE) {
        snprintf(name, sizeof(name), "%x", a.count);
        put_entry(&a, name, 0, "", 0, 0);
    }
    finish(&a);
    if (measured(read_tensors, a.file.p, a.file.len, &err) != MSP_OK)
        fail_msg("%s", err.message);
    release(&a);
}

static msp_status
open_zip(const char *p, size_t size, msp_error *err)
{
    msp_zip z;
    msp_status st = msp_zip_open(&z, p, size, err);

    msp_zip_close(&z);
    return st;
}

static void
a_directory_without_its_entries_is_refused_before_it_costs_anything(void **state)
{
    archive a = {0};
    char header[46];
    msp_error err;

    (void)state;
    put_entry(&a, "", 0, "", 0, 0);
    memcpy(header, a.directory.p, sizeof(header));
    while (a.directory.len < SIZE) {
        msp_buf_add(&a.directory, header, sizeof(header));
        a.count++;
    }
    finish(&a);
    assert_int_equal(measured(open_zip, a.file.p, a.file.len, &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "entries cannot stand in a directory of"));
    release(&a);
}

static void
what_is_compressed_may_not_become_larger_than_the_promise(void **state)
{
    enum { BOMB = 64 << 20 };
    msp_buf zeros = deflated('\0', BOMB), nones = deflated('N', BOMB), few = deflated('\0', EXTRA / 2);
    archive storage = {0}, pickle = {0}, fine = {0};
    msp_error err;

    (void)state;
    put_entry(&storage, "x/data.pkl", 0, ONE, sizeof(ONE) - 1, sizeof(ONE) - 1);
    put_entry(&storage, "x/data/0", 8, zeros.p, zeros.len, BOMB);
    finish(&storage);
    assert_int_equal(measured(read_tensors, storage.file.p, storage.file.len, &err), MSP_E_LIMIT);
    put_entry(&pickle, "x/data.pkl", 8, nones.p, nones.len, BOMB);
    finish(&pickle);
    assert_int_equal(measured(read_tensors, pickle.file.p, pickle.file.len, &err), MSP_E_LIMIT);
    put_entry(&fine, "x/data.pkl", 0, ONE, sizeof(ONE) - 1, sizeof(ONE) - 1);
    put_entry(&fine, "x/data/0", 8, few.p, few.len, EXTRA / 2);
    finish(&fine);
    if (measured(read_tensors, fine.file.p, fine.file.len, &err) != MSP_OK)
        fail_msg("%s", err.message);
    release(&storage);
    release(&pickle);
    release(&fine);
    msp_buf_release(&zeros);
    msp_buf_release(&nones);
    msp_buf_release(&few);
}

/* A .safetensors file whose header is a flood. */
static msp_status
read_header(const char *head, const char *unit, const char *tail, msp_error *err)
{
    msp_buf header = flood(head, unit, tail), file = {0};
    msp_status st;

    put_number(&file, header.len, 8);
    msp_buf_add(&file, header.p, header.len);
    msp_buf_release(&header);
    st = measured(read_tensors, file.p, file.len, err);
    msp_buf_release(&file);
    return st;
}

static void
safetensors_headers_of_tiny_values_are_refused(void **state)
{
    msp_error err;

    (void)state;
    assert_int_equal(read_header("{\"__metadata__\":[", "0,", "]}", &err), MSP_E_LIMIT);
    assert_int_equal(read_header("{", "\"\":{},", "}", &err), MSP_E_LIMIT);
    assert_int_equal(
        read_header(
            "{", "\"__metadata__\":\"some text that is a good deal longer than what its two values cost in memory\",",
            "}", &err),
        MSP_OK);
}

static void
safetensors_of_very_many_tensors_are_refused(void **state)
{
    msp_buf header = {0}, file = {0};
    msp_error err;

    (void)state;
    msp_buf_text(&header, "{");
    while (header.len < SIZE / 16)
        msp_buf_printf(&header, "%s\"%zx\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                       header.len > 1 ? "," : "", header.len);
    msp_buf_text(&header, "}");
    put_number(&file, header.len, 8);
    msp_buf_add(&file, header.p, header.len);
    assert_int_equal(measured(read_tensors, file.p, file.len, &err), MSP_E_LIMIT);
    assert_non_null(strstr(err.message, "describing its content takes more memory than a file of this size may"));
    msp_buf_release(&header);
    msp_buf_release(&file);
}

/* ---- dumps ------------------------------------------------------------------------------------------------------ */

static msp_status
read_dump(const char *p, size_t size, msp_error *err)
{
    msp_dump *d;
    msp_status st = msp_dump_open_text(&d, p, size, "dump.json", err);

    for (size_t i = 0; st == MSP_OK && i < msp_dump_count(d) && i < 3; i++) {
        msp_json_doc doc;

        st = msp_dump_record(d, i, &doc, NULL, 0, err);
        msp_json_doc_release(&doc);
    }
    msp_dump_close(d);
    return st;
}

#define DATA "{\"task\":\"statistics\",\"level\":\"L1\",\"data\":{"

/* Records with names of their own, of this form, in about size bytes. */
static msp_buf
records(const char *form, size_t size)
{
    msp_buf b = {0};

    msp_buf_text(&b, DATA);
    for (unsigned i = 0; b.len < size; i++) {
        if (i > 0)
            msp_buf_char(&b, ',');
        msp_buf_printf(&b, form, i);
    }
    msp_buf_text(&b, "}}");
    return b;
}

static void
dumps_of_tiny_records_are_refused(void **state)
{
    static const char *const forms[] = {"\"%x\":0", "\"%x\":{}", "\"\\n%x\":0"};
    msp_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        msp_buf b = records(forms[i], SIZE / 8);

        assert_int_equal(measured(read_dump, b.p, b.len, &err), MSP_E_LIMIT);
        assert_non_null(strstr(err.message, "dump.json: byte "));
        assert_non_null(strstr(err.message, "more records of a few bytes each than a dump can have"));
        msp_buf_release(&b);
    }
}

static void
dumps_of_real_records_are_read(void **state)
{
    msp_buf b =
        records("\"Functional.relu.%x.forward\": {\"input_args\": [{\"type\": \"torch.Tensor\", \"dtype\": "
                "\"torch.float32\", \"shape\": [2, 3], \"Max\": 1.0, \"Min\": 0.0, \"Mean\": 0.5, \"Norm\": 1.2}]}",
                SIZE);
    msp_error err;

    (void)state;
    if (measured(read_dump, b.p, b.len, &err) != MSP_OK)
        fail_msg("%s", err.message);
    msp_buf_release(&b);
}

static void
one_record_or_member_that_is_the_whole_dump_keeps_the_promise(void **state)
{
    msp_error err;

    (void)state;
    assert_int_equal(read_flood(read_dump, DATA "\"a\":[", "0,", "]}}", &err), MSP_E_LIMIT);
    assert_non_null(strstr(err.message, "dump.json: line 1, column "));
    assert_int_equal(read_flood(read_dump, DATA "\"a\":[", "\"\\n\",", "]}}", &err), MSP_E_LIMIT);
    assert_int_equal(read_flood(read_dump, DATA "\"a\":\"", "\\n", "\"}}", &err), MSP_OK);
    assert_int_equal(read_flood(read_dump, DATA "\"", "\\n", "\":0}}", &err), MSP_OK);
    assert_int_equal(read_flood(read_dump, "{\"data\":{},\"task\":\"", "\\n", "\"}", &err), MSP_E_FORMAT);
    assert_int_equal(read_flood(read_dump, "[", "0,", "]", &err), MSP_E_LIMIT);
}

static msp_status
read_stack(const char *p, size_t size, msp_error *err)
{
    msp_stack *s;
    msp_status st = msp_stack_open_text(&s, p, size, err);

    msp_stack_close(s);
    return st;
}

static void
stacks_of_tiny_names_keep_the_promise(void **state)
{
    msp_buf names = {0}, groups = {0};
    msp_error err;

    (void)state;
    msp_buf_text(&names, "{");
    msp_buf_text(&groups, "{\"0\":[[");
    for (unsigned i = 0; names.len < SIZE / 4; i++) {
        msp_buf_printf(&names, "%s\"%x\":[]", i > 0 ? "," : "", i);
        msp_buf_printf(&groups, "%s\"%x\"", i > 0 ? "," : "", i);
    }
    msp_buf_text(&names, "}");
    msp_buf_text(&groups, "],[]]}");
    assert_int_equal(measured(read_stack, names.p, names.len, &err), MSP_E_LIMIT);
    assert_int_equal(measured(read_stack, groups.p, groups.len, &err), MSP_E_LIMIT);
    msp_buf_release(&names);
    msp_buf_release(&groups);
}

static void
more_names_than_the_tree_leaves_memory_for_are_refused(void **state)
{
    msp_buf b = {0};
    msp_error err;

    (void)state;
    msp_buf_text(&b, "{\"0\":[[\"\"");
    for (unsigned i = 0; i < 400000; i++)
        msp_buf_printf(&b, ",\"%032x\"", i);
    msp_buf_text(&b, "],[]]}");
    assert_int_equal(measured(read_stack, b.p, b.len, &err), MSP_E_LIMIT);
    assert_string_equal(err.message, "400001 names in 14000015 bytes are more than a stack.json can have");
    msp_buf_release(&b);
}

/* ---- records ---------------------------------------------------------------------------------------------------- */

static msp_status
read_record(const char *p, size_t size, msp_error *err)
{
    record_reader r = {(const unsigned char *)p, (const unsigned char *)p + size, false};
    msp_json_writer w;
    msp_buf out = {0};
    bool good;

    (void)err;
    msp_json_writer_init(&w, &out, 1);
    good = msp_record_to_json(&r, &w);
    msp_buf_release(&out);
    return good ? MSP_OK : MSP_E_FORMAT;
}

static void
a_damaged_record_does_not_unfold_without_end(void **state)
{
    char *p = malloc(SIZE);

    (void)state;
    memset(p, TOKEN_NULL, SIZE);
    memset(p, TOKEN_ARRAY, 500);
    assert_int_equal(measured(read_record, p, SIZE, NULL), MSP_E_FORMAT);
    memset(p, TOKEN_TEXT, 1);
    memset(p + 5, 1, SIZE - 5); /* control characters become six each */
    memcpy(p + 1, (const uint32_t[]){SIZE - 5}, 4);
    assert_int_equal(measured(read_record, p, SIZE, NULL), MSP_E_FORMAT);
    free(p);
}

static int
with_a_small_constant(void **state)
{
    (void)state;
    msp_reader_extra_set(EXTRA);
    return 0;
}

/* ---- lines of the older tools ------------------------------------------------------------------------------------ */

static msp_status
read_legacy(const char *p, size_t size, msp_error *err)
{
    msp_legacy_reader r = {.text = p, .size = size, .path = "d.pkl"};
    msp_legacy_line line;
    bool more = true;
    msp_status st = MSP_OK;

    while (st == MSP_OK && more) {
        st = msp_legacy_next(&r, &line, &more, err);
        if (st == MSP_OK && more && line.kind == LEGACY_VALUES) {
            size_t n;
            double *v;

            st = msp_legacy_values(&v, &n, line.values, err);
            msp_free(v);
        }
    }
    msp_legacy_reader_release(&r);
    return st;
}

static void
lines_of_the_older_tools_take_no_more_than_their_size(void **state)
{
    msp_error err;

    (void)state;
    assert_int_equal(read_flood(read_legacy, "", "[\"a\", 1, [], \"t\", [2], [1, 2, 3]]\n", "", &err), MSP_OK);
    assert_int_equal(read_flood(read_legacy, "[\"a\", [", "0.12345678,", "], \"t\", [2]]\n", &err), MSP_OK);
    assert_int_equal(read_flood(read_legacy, "[\"a\", [", "0,", "], \"t\", [2]]\n", &err), MSP_E_LIMIT);
    assert_int_equal(read_flood(read_legacy, "[\"stack_info\", [", "[],", "]]\n", &err), MSP_E_LIMIT);
    assert_int_equal(read_flood(read_legacy, "[\"a\", 1, [], \"t\", [", "0,", "], [1, 2, 3]]\n", &err), MSP_E_LIMIT);
}

/* ---- csv -------------------------------------------------------------------------------------------------------- */

static msp_status
pass_row(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    (void)cells, (void)count, (void)payload, (void)err;
    return MSP_OK;
}

static msp_status
read_csv(const char *p, size_t size, msp_error *err)
{
    return msp_csv_read(p, size, &(msp_table_sink){pass_row, pass_row, NULL}, err);
}

static void
a_csv_line_takes_no_more_than_its_size(void **state)
{
    msp_error err;

    (void)state;
    assert_int_equal(read_flood(read_csv, "title\n", ",", "\n", &err), MSP_E_LIMIT);
    assert_memory_equal(err.message, "line 2: more than ", 18);
    assert_int_equal(read_flood(read_csv, "\"", "a text of usual length", "\"", &err), MSP_OK);
    assert_int_equal(read_flood(read_csv, "\"", "\"\"", "\"", &err), MSP_OK);
    assert_int_equal(read_flood(read_csv, "", "\"\"\"a\"\"\"\n", "", &err), MSP_OK);
    assert_int_equal(read_flood(read_csv, "", "\"\"\"\",", "", &err), MSP_E_LIMIT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lines_of_the_older_tools_take_no_more_than_their_size),
        TEST(json_of_tiny_values_is_refused_with_its_place),
        TEST(json_of_long_values_is_read_whatever_its_size),
        TEST(a_dense_list_of_a_million_numbers_is_fine),
        TEST(yaml_of_tiny_values_is_refused_with_its_place),
        TEST(yaml_directives_are_counted),
        TEST(npy_takes_one_copy_at_most),
        TEST(pickles_of_tiny_values_are_refused),
        TEST(archives_of_tiny_entries_take_less_than_they_have),
        TEST(a_directory_without_its_entries_is_refused_before_it_costs_anything),
        TEST(what_is_compressed_may_not_become_larger_than_the_promise),
        TEST(safetensors_headers_of_tiny_values_are_refused),
        TEST(safetensors_of_very_many_tensors_are_refused),
        TEST(dumps_of_tiny_records_are_refused),
        TEST(dumps_of_real_records_are_read),
        TEST(one_record_or_member_that_is_the_whole_dump_keeps_the_promise),
        TEST(stacks_of_tiny_names_keep_the_promise),
        TEST(more_names_than_the_tree_leaves_memory_for_are_refused),
        TEST(a_csv_line_takes_no_more_than_its_size),
        TEST(a_damaged_record_does_not_unfold_without_end),
    };

    return cmocka_run_group_tests(tests, with_a_small_constant, NULL);
}
