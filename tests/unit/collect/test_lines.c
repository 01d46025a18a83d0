/* test_lines.c - the files of the older tools as the writer makes them: collect/lines.h. */
#include "unit.h"
#include <dirent.h>
#include <sys/stat.h>
#include "collect/lines.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "msprobe/collect.h"

/* A folder of its own for each test. */
static const char *
unit_dir(const char *name)
{
    const char *path = scratch_path(name);

    assert_int_equal(mkdir(path, 0700), 0);
    return path;
}

static msp_collect *
open_collect(const char *dir)
{
    msp_collect_options opt = {dir, 1 << 20, NULL};
    msp_collect *c;
    msp_error err;

    if (msp_collect_open(&c, &opt, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return c;
}

static uint32_t
open_unit(msp_collect *c, msp_unit_kind kind, const char *dir, const char *data_dir, int64_t mark)
{
    msp_unit_info info = {dir, kind, "", "", "pytorch", data_dir, "dump.pkl", mark};
    msp_error err;
    uint32_t unit;

    if (msp_collect_unit(c, &unit, &info, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return unit;
}

static void
add_tensor(msp_record *r, const char *name, msp_dtype dtype, const void *data, int64_t n)
{
    msp_tensor_note note = {0};
    msp_stats stats;
    msp_tensor t;

    assert_int_equal(msp_tensor_view(&t, data, dtype, 1, &n, NULL), MSP_OK);
    msp_stats_compute(&stats, &t);
    note = (msp_tensor_note){.shape_of = &t, .stats = &stats, .values = &t};
    msp_record_key(r, name, strlen(name));
    msp_record_tensor(r, &note);
}

static void
commit(msp_collect *c, msp_record *r)
{
    msp_error err;

    msp_record_end(r);
    if (msp_collect_commit(c, r, NULL, NULL, &err) != MSP_OK)
        fail_msg("%s", err.message);
}

static void
begin(msp_record *r, uint32_t unit)
{
    msp_record_begin(r, unit, "Torch_relu_0_forward", 20);
    msp_record_object(r);
}

static void
assert_file(const char *dir, const char *name, const char *text)
{
    char *path = msp_path_join(dir, name), *got;
    msp_error err;
    size_t size;

    if (msp_file_read(&got, &size, path, 1 << 20, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_string_equal(got, text);
    msp_free(got);
    msp_free(path);
}

static void
values_become_lines_and_npy_files(void **state)
{
    const float f[] = {1.5f, -2.0f};
    const uint16_t bf[] = {0x3f80, 0x4000}; /* 1, 2 */
    const uint8_t b[] = {1, 0};
    const int64_t i[] = {4, 1};
    const char *dir = unit_dir("lines"), *frames[] = {"a.py", "3", "f", "x = \"\xe4\xb8\xad\"", "b.py", "7", "g", ""};
    char *data = msp_path_join(dir, "dump"), *npy;
    msp_collect *c = open_collect(dir);
    uint32_t unit = open_unit(c, MSP_UNIT_PTDBG, dir, data, 1), stack;
    msp_record r = {0};
    msp_tensor t;
    msp_error err;

    (void)state;
    assert_int_equal(msp_collect_stack(c, &stack, frames, 8, &err), MSP_OK);
    begin(&r, unit);
    msp_record_fill(&r, stack);
    add_tensor(&r, "a_input.0", MSP_F32, f, 2);
    add_tensor(&r, "a_input.1", MSP_BF16, bf, 2);
    add_tensor(&r, "a_input.2", MSP_BOOL, b, 2);
    add_tensor(&r, "a_input.3", MSP_I64, i, 2);
    add_tensor(&r, "a_input.4", MSP_F32, f, 0);
    msp_record_key(&r, "a_input.5", 9);
    msp_record_int(&r, 7);
    msp_record_key(&r, "a_input.6", 9);
    msp_record_float(&r, 0.5);
    msp_record_key(&r, "a_input.7", 9);
    msp_record_bool(&r, true);
    msp_record_key(&r, "a_stack_info", 12);
    msp_record_null(&r);
    commit(c, &r);
    msp_collect_close(c);
    assert_file(
        dir, "dump.pkl",
        "[\"a_input.0\", 1, [], \"torch.float32\", [2], [1.5, -2.0, -0.25]]\n"
        "[\"a_input.1\", 1, [], \"torch.bfloat16\", [2], [2.0, 1.0, 1.5]]\n"
        "[\"a_input.2\", 1, [], \"torch.bool\", [2], [[], [], []]]\n"
        "[\"a_input.3\", 1, [], \"torch.int64\", [2], [4.0, 1.0, 2.5]]\n"
        "[\"a_input.4\", 1, [], \"torch.float32\", [0], [[], [], []]]\n"
        "[\"a_input.5\", 1, [], \"<class 'int'>\", \"[]\", [7, 7, 7]]\n"
        "[\"a_input.6\", 1, [], \"<class 'float'>\", \"[]\", [0.5, 0.5, 0.5]]\n"
        "[\"a_input.7\", 1, [], \"<class 'bool'>\", \"[]\", [true, true, true]]\n"
        "[\"a_stack_info\", [[\"a.py\", \"3\", \"f\", \"x = \\\"\\u4e2d\\\"\"], [\"b.py\", \"7\", \"g\", null]]]\n");
    npy = msp_path_join(data, "a_input.1.npy");
    assert_int_equal(msp_npy_open(&t, npy, &err), MSP_OK);
    assert_int_equal(t.dtype, MSP_F32);
    assert_true(((const float *)t.data)[1] == 2.0f);
    msp_tensor_release(&t);
    msp_free(npy);
    npy = msp_path_join(data, "a_input.5.npy");
    assert_int_equal(msp_npy_open(&t, npy, &err), MSP_OK);
    assert_int_equal(t.ndim, 0);
    assert_int_equal(*(const int64_t *)t.data, 7);
    msp_tensor_release(&t);
    msp_free(npy);
    msp_free(data);
    msp_record_release(&r);
}

static void
a_name_too_long_for_a_file_keeps_its_line(void **state)
{
    const char *dir = unit_dir("lines_long_name");
    char *data = msp_path_join(dir, "dump"), name[300], line[400];
    msp_collect *c = open_collect(dir);
    uint32_t unit = open_unit(c, MSP_UNIT_PTDBG, dir, data, 1);
    msp_record r = {0};

    (void)state;
    memset(name, 'n', sizeof(name));
    begin(&r, unit);
    msp_record_key(&r, name, sizeof(name));
    msp_record_int(&r, 7);
    msp_record_key(&r, "b", 1);
    msp_record_int(&r, 8);
    commit(c, &r);
    msp_collect_close(c);
    snprintf(line, sizeof(line),
             "[\"%.*s\", 1, [], \"<class 'int'>\", \"[]\", [7, 7, 7]]\n"
             "[\"b\", 1, [], \"<class 'int'>\", \"[]\", [8, 8, 8]]\n",
             (int)sizeof(name), name);
    assert_file(dir, "dump.pkl", line);
    msp_free(data);
    msp_record_release(&r);
}

static void
a_mark_above_100_has_no_statistics(void **state)
{
    const float f[] = {1.5f};
    const char *dir = unit_dir("lines_overflow");
    msp_collect *c = open_collect(dir);
    msp_record r = {0};

    (void)state;
    begin(&r, open_unit(c, MSP_UNIT_PTDBG, dir, NULL, 101));
    add_tensor(&r, "a", MSP_F32, f, 1);
    commit(c, &r);
    msp_collect_close(c);
    assert_file(dir, "dump.pkl", "[\"a\", 101, [], \"torch.float32\", [1]]\n");
    msp_record_release(&r);
}

static void
elements_stand_in_the_lines_of_hooks(void **state)
{
    const double d[] = {0.1, 1.0 / 0.0, -3.0, 0.0 / 0.0};
    const char *dir = unit_dir("lines_hooks");
    msp_collect *c = open_collect(dir);
    msp_record r = {0};

    (void)state;
    begin(&r, open_unit(c, MSP_UNIT_HOOKS, dir, NULL, 0));
    add_tensor(&r, "a", MSP_F64, d, 4);
    commit(c, &r);
    msp_collect_close(c);
    assert_file(dir, "dump.pkl", "[\"a\", [0.10000000149011612, Infinity, -3.0, NaN], \"torch.float64\", [4]]\n");
    msp_record_release(&r);
}

static void
a_file_is_appended_to_and_a_cut_line_dropped(void **state)
{
    const float f[] = {1.5f};
    const char *dir = unit_dir("lines_append");
    char *path = msp_path_join(dir, "dump.pkl");
    FILE *file = fopen(path, "w");
    msp_collect *c;
    msp_record r = {0};

    (void)state;
    assert_non_null(file);
    fputs("[\"whole\"]\n[\"cut", file);
    fclose(file);
    c = open_collect(dir);
    begin(&r, open_unit(c, MSP_UNIT_PTDBG, dir, NULL, 1));
    add_tensor(&r, "a", MSP_F32, f, 1);
    commit(c, &r);
    msp_collect_close(c);
    assert_file(dir, "dump.pkl", "[\"whole\"]\n[\"a\", 1, [], \"torch.float32\", [1], [1.5, 1.5, 1.5]]\n");
    msp_free(path);
    msp_record_release(&r);
}

/* The tokens of a record without its frame and name. */
static record_reader
body_of(const msp_record *r)
{
    record_reader body = {r->p + sizeof(frame_header), r->p + r->len, false};

    msp_record_read_text(&body);
    return body;
}

static void
a_record_that_is_cut_adds_nothing(void **state)
{
    const float f[] = {1.5f, 2.5f};
    const char *dir = unit_dir("lines_cut");
    msp_lines l;
    msp_record r = {0};
    msp_buf text = {0};
    msp_error err;
    bool damaged;

    (void)state;
    assert_int_equal(msp_lines_open(&l, MSP_UNIT_PTDBG, dir, MSP_STR("x.pkl"), (msp_str){"", 0}, 1, &err), MSP_OK);
    begin(&r, 0);
    add_tensor(&r, "a", MSP_F32, f, 2);
    msp_record_key(&r, "b", 1);
    msp_record_int(&r, 3);
    msp_record_end(&r);
    for (size_t len = r.len - 1; len > sizeof(frame_header) + 4 + 20; len--) {
        msp_record cut = {.p = r.p, .len = len};
        record_reader body = body_of(&cut);

        assert_int_equal(msp_lines_add(&l, &text, &body, NULL, &damaged, &err), MSP_OK);
        assert_true(damaged);
        assert_int_equal(text.len, 0);
    }
    msp_buf_release(&text);
    msp_record_release(&r);
    msp_lines_close(&l);
}

static void
elements_that_do_not_fit_the_shape_are_damage(void **state)
{
    const float f[] = {1.5f, 2.5f};
    const char *dir = unit_dir("lines_shape");
    int64_t shape = 5;
    msp_tensor t, wrong;
    msp_tensor_note note;
    msp_lines l;
    msp_record r = {0};
    msp_buf text = {0};
    record_reader body;
    msp_error err;
    bool damaged;

    (void)state;
    assert_int_equal(msp_lines_open(&l, MSP_UNIT_HOOKS, dir, MSP_STR("x.pkl"), (msp_str){"", 0}, 1, &err), MSP_OK);
    assert_int_equal(msp_tensor_view(&t, f, MSP_F32, 1, (int64_t[]){2}, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&wrong, f, MSP_F32, 1, &shape, NULL), MSP_OK);
    note = (msp_tensor_note){.shape_of = &wrong, .values = &t};
    begin(&r, 0);
    msp_record_key(&r, "a", 1);
    msp_record_tensor(&r, &note);
    msp_record_end(&r);
    body = body_of(&r);
    assert_int_equal(msp_lines_add(&l, &text, &body, NULL, &damaged, &err), MSP_OK);
    assert_true(damaged);
    assert_int_equal(text.len, 0);
    msp_buf_release(&text);
    msp_record_release(&r);
    msp_lines_close(&l);
}

static void
without_memory_there_is_an_error_and_no_crash(void **state)
{
    const uint16_t bf[] = {0x3f80, 0x4000};
    const char *dir = unit_dir("lines_memory");
    char *data = msp_path_join(dir, "dump");
    msp_status st = MSP_E_NOMEM;
    msp_error err;

    (void)state;
    for (int n = 0; st == MSP_E_NOMEM && n < 100; n++) {
        msp_lines l = MSP_LINES_NONE;
        msp_record r = {0};
        msp_buf text = {0};
        record_reader body;
        bool damaged = false;

        begin(&r, 0);
        add_tensor(&r, "a", MSP_BF16, bf, 2);
        msp_record_end(&r);
        body = body_of(&r);
        msp_alloc_fail_after(n);
        st = msp_lines_open(&l, MSP_UNIT_PTDBG, dir, MSP_STR("x.pkl"), msp_str_of(data), 1, &err);
        if (st == MSP_OK)
            st = msp_lines_add(&l, &text, &body, NULL, &damaged, &err);
        msp_alloc_fail_after(-1);
        assert_false(damaged);
        msp_lines_close(&l);
        msp_buf_release(&text);
        msp_record_release(&r);
    }
    assert_int_equal(st, MSP_OK);
    msp_free(data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(values_become_lines_and_npy_files),
        TEST(a_name_too_long_for_a_file_keeps_its_line),
        TEST(a_mark_above_100_has_no_statistics),
        TEST(elements_stand_in_the_lines_of_hooks),
        TEST(a_file_is_appended_to_and_a_cut_line_dropped),
        TEST(a_record_that_is_cut_adds_nothing),
        TEST(elements_that_do_not_fit_the_shape_are_damage),
        TEST(without_memory_there_is_an_error_and_no_crash),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
