/* test_online_call.c - promises of online/call.h: a call as bytes, there and back. */
#include "unit.h"
#include "core/alloc.h"
#include "core/file.h"
#include "online/call.h"

static const msp_call_head HEAD = {.number = 3,
                                   .step = 2,
                                   .rank = 1,
                                   .name = {"Torch.add.0", 11},
                                   .reason = {"", 0},
                                   .forward = {"{\"a\": 1}", 8},
                                   .backward = {"", 0}};

static void
save_tensors(void)
{
    static const float numbers[6] = {1, 2, 3, 4, 5, 6};
    static const unsigned char bytes[3] = {7, 8, 9};
    msp_tensor t;

    assert_int_equal(msp_tensor_view(&t, numbers, MSP_F32, 2, (int64_t[]){2, 3}, NULL), MSP_OK);
    assert_int_equal(msp_pt_save(scratch_path("a.pt"), &t, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&t, bytes, MSP_U8, 1, (int64_t[]){3}, NULL), MSP_OK);
    assert_int_equal(msp_pt_save(scratch_path("b.pt"), &t, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&t, NULL, MSP_F16, 2, (int64_t[]){0, 4}, NULL), MSP_OK);
    assert_int_equal(msp_pt_save(scratch_path("c.pt"), &t, NULL), MSP_OK);
}

/* All of it, in spans of at most `most` bytes, in memory that free() gives back. */
static char *
join(const msp_call_parts *c, size_t most)
{
    char *out = malloc(c->size);
    const void *p;
    uint64_t at = 0;
    size_t n;

    assert_non_null(out);
    for (; (n = msp_call_span(c, at, most, &p)) > 0; at += n)
        memcpy(out + at, p, n);
    assert_int_equal(at, c->size);
    return out;
}

static char *
build(size_t *size, const msp_call_head *head, size_t most)
{
    static const msp_str names[] = {{"a.pt", 4}, {"b.pt", 4}, {"c.pt", 4}};
    msp_call_parts parts;
    char *out;

    save_tensors();
    assert_int_equal(msp_call_build(&parts, head, scratch_dir(), names, 3, NULL), MSP_OK);
    out = join(&parts, most);
    *size = (size_t)parts.size;
    msp_call_release(&parts);
    return out;
}

static void
assert_call(const msp_online_call *c)
{
    static const float numbers[6] = {1, 2, 3, 4, 5, 6};

    assert_int_equal(c->number, 3);
    assert_int_equal(c->step, 2);
    assert_int_equal(c->rank, 1);
    assert_int_equal(c->name.len, 11);
    assert_memory_equal(c->name.p, "Torch.add.0", 11);
    assert_memory_equal(c->forward.p, "{\"a\": 1}", 8);
    assert_int_equal(c->backward.len, 0);
    assert_int_equal(c->ntensors, 3);
    assert_int_equal(c->tensors[0].view.dtype, MSP_F32);
    assert_int_equal(c->tensors[0].view.shape[1], 3);
    assert_memory_equal(c->tensors[0].view.data, numbers, sizeof(numbers));
    assert_memory_equal(c->tensors[1].view.data, "\7\10\11", 3);
    assert_int_equal(c->tensors[2].view.numel, 0);
    assert_memory_equal(c->tensors[2].name.p, "c.pt", 4);
}

static void
a_call_comes_back_with_its_tensors(void **state)
{
    msp_online_call c;
    size_t size;

    (void)state;
    for (size_t most = 1; most < 5000; most = most * 3 + 1) {
        char *bytes = build(&size, &HEAD, most);

        assert_int_equal(msp_online_call_parse(&c, bytes, size, NULL), MSP_OK);
        assert_call(&c);
        msp_online_call_release(&c);
        free(bytes);
    }
}

static void
a_call_is_read_from_a_file(void **state)
{
    msp_online_call c;
    msp_error err;
    size_t size;
    char *bytes = build(&size, &HEAD, 1000);
    const char *path = write_file("x.call", bytes, size);

    (void)state;
    assert_int_equal(msp_online_call_open(&c, path, NULL), MSP_OK);
    assert_call(&c);
    assert_int_equal((uintptr_t)c.tensors[0].view.data % 16, 0);
    msp_online_call_release(&c);
    path = write_file("x.call", bytes, size - 1);
    assert_int_equal(msp_online_call_open(&c, path, &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "x.call: a damaged call"));
    assert_int_equal(msp_online_call_open(&c, scratch_path("none.call"), &err), MSP_E_NOT_FOUND);
    free(bytes);
}

static void
a_call_that_is_cut_anywhere_is_refused(void **state)
{
    msp_online_call c;
    size_t size;
    char *bytes = build(&size, &HEAD, 1000);

    (void)state;
    for (size_t n = 0; n < size; n++) {
        char *copy = malloc(n + 1); /* so that ASan sees who reads on */

        memcpy(copy, bytes, n);
        assert_int_equal(msp_online_call_parse(&c, copy, n, NULL), MSP_E_FORMAT);
        assert_null(c.tensors);
        free(copy);
    }
    free(bytes);
}

static void
a_name_that_could_be_a_path_is_refused(void **state)
{
    static const char *const names[] = {"Torch.add",   "a/b.c.0",      "..a.b", "Torch.\"add\".0",
                                        "Torch.a,b.0", "Torch.a\nb.0", ""};
    msp_call_parts parts;
    msp_online_call c;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        msp_call_head head = HEAD;
        char *bytes;

        head.name = msp_str_of(names[i]);
        assert_int_equal(msp_call_build(&parts, &head, scratch_dir(), NULL, 0, NULL), MSP_OK);
        bytes = join(&parts, 1000);
        assert_int_equal(msp_online_call_parse(&c, bytes, (size_t)parts.size, NULL), MSP_E_FORMAT);
        free(bytes);
        msp_call_release(&parts);
    }
}

static void
a_file_that_is_missing_is_named(void **state)
{
    const msp_str name = {"gone.pt", 7};
    msp_call_parts parts;
    msp_error err;

    (void)state;
    assert_int_not_equal(msp_call_build(&parts, &HEAD, scratch_dir(), &name, 1, &err), MSP_OK);
    assert_non_null(strstr(err.message, "gone.pt"));
    assert_null(parts.tensors);
}

static void
without_memory_there_is_an_error_and_no_leak(void **state)
{
    static const msp_str names[] = {{"a.pt", 4}, {"b.pt", 4}};
    const int64_t before = msp_alloc_live();
    msp_status st = MSP_E_NOMEM;
    msp_call_parts parts;
    msp_online_call c;
    char *bytes;

    (void)state;
    save_tensors();
    for (int64_t n = 0; st != MSP_OK; n++) {
        msp_alloc_fail_after(n);
        st = msp_call_build(&parts, &HEAD, scratch_dir(), names, 2, NULL);
        msp_alloc_fail_after(-1);
        if (st != MSP_OK)
            assert_int_equal(msp_alloc_live(), before);
    }
    bytes = join(&parts, 1000);
    msp_alloc_fail_after(0);
    assert_int_equal(msp_online_call_parse(&c, bytes, (size_t)parts.size, NULL), MSP_E_NOMEM);
    msp_alloc_fail_after(-1);
    free(bytes);
    msp_call_release(&parts);
    assert_int_equal(msp_alloc_live(), before);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_call_comes_back_with_its_tensors),     TEST(a_call_is_read_from_a_file),
        TEST(a_call_that_is_cut_anywhere_is_refused), TEST(a_name_that_could_be_a_path_is_refused),
        TEST(a_file_that_is_missing_is_named),        TEST(without_memory_there_is_an_error_and_no_leak),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
