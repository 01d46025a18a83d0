/* test_path.c - promises of core/path.h. */
#include "unit.h"
#include <sys/stat.h>
#include "core/alloc.h"
#include "core/path.h"

static void
assert_str(msp_str s, const char *expected)
{
    assert_int_equal(s.len, strlen(expected));
    assert_memory_equal(s.p, expected, s.len);
}

static void
paths_are_taken_apart_and_joined(void **state)
{
    char *p;

    (void)state;
    assert_str(msp_path_base("/a/b"), "b");
    assert_str(msp_path_base("/a/b//"), "b");
    assert_str(msp_path_base("b"), "b");
    assert_str(msp_path_base(""), "");
    assert_str(msp_path_dir("/a/b"), "/a");
    assert_str(msp_path_dir("/a//b/"), "/a");
    assert_str(msp_path_dir("/a"), "/");
    assert_str(msp_path_dir("b"), ".");
    assert_str(msp_path_dir("a/b"), "a");
    p = msp_path_join("/a", "b");
    assert_string_equal(p, "/a/b");
    msp_free(p);
    p = msp_path_join("/a/", "b");
    assert_string_equal(p, "/a/b");
    msp_free(p);
    p = msp_path_join("", "b");
    assert_string_equal(p, "b");
    msp_free(p);
    p = msp_path_join("a", "");
    assert_string_equal(p, "a");
    msp_free(p);
    p = msp_path_beside("/a/dump.json", "stack.json");
    assert_string_equal(p, "/a/stack.json");
    msp_free(p);
    p = msp_path_beside("/dump.json", "stack.json");
    assert_string_equal(p, "/stack.json");
    msp_free(p);
    msp_alloc_fail_after(0);
    assert_null(msp_path_join("a", "b"));
    msp_alloc_fail_after(-1);
}

static void
what_stands_at_a_path_is_told(void **state)
{
    const char *file = write_file("file", "", 0), *link = scratch_path("link");

    (void)state;
    assert_int_equal(symlink(file, link), 0);
    assert_int_equal(msp_path_kind_of(file), MSP_PATH_FILE);
    assert_int_equal(msp_path_kind_of(link), MSP_PATH_FILE);
    assert_int_equal(msp_path_kind_of(scratch_dir()), MSP_PATH_DIR);
    assert_int_equal(msp_path_kind_of("/dev/null"), MSP_PATH_OTHER);
    assert_int_equal(msp_path_kind_of(scratch_path("none")), MSP_PATH_NONE);
}

static void
directories_are_made_with_their_parents(void **state)
{
    const char *deep = scratch_path("x y/\xE4\xBD\xA0//z/");
    const char *file = write_file("plain", "", 0);
    char under[600];
    struct stat st;
    msp_error err;

    (void)state;
    umask(022);
    assert_int_equal(msp_path_make_dirs(deep, &err), MSP_OK);
    assert_int_equal(msp_path_make_dirs(deep, &err), MSP_OK);
    assert_int_equal(stat(scratch_path("x y"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0750);
    assert_int_equal(stat(deep, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    snprintf(under, sizeof(under), "%s/sub", file);
    assert_int_equal(msp_path_make_dirs(under, &err), MSP_E_IO);
    assert_non_null(strstr(err.message, file));
    assert_int_equal(msp_path_make_dirs(file, &err), MSP_E_IO);
    assert_int_equal(msp_path_make_dirs("", &err), MSP_E_IO);
    msp_alloc_fail_after(0);
    assert_int_equal(msp_path_make_dirs(deep, &err), MSP_E_NOMEM);
    msp_alloc_fail_after(-1);
}

static void
names_are_ordered_by_number(void **state)
{
    const char *ordered[] = {"",
                             "a",
                             "rank",
                             "rank0",
                             "rank01",
                             "rank1",
                             "rank1a",
                             "rank2",
                             "rank10",
                             "rank10a2",
                             "rank10a10",
                             "rank100",
                             "rank99999999999999999999999998",
                             "rank99999999999999999999999999",
                             "rankx",
                             "z"};
    size_t n = sizeof(ordered) / sizeof(ordered[0]);

    (void)state;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            int c = msp_str_cmp_natural(msp_str_of(ordered[i]), msp_str_of(ordered[j]));

            if ((i < j) != (c < 0) || (i > j) != (c > 0))
                fail_msg("%s and %s: %d", ordered[i], ordered[j], c);
        }
}

/* Any three of a few thousand names: an order that contradicts itself would make qsort() do anything. */
static void
the_order_does_not_contradict_itself(void **state)
{
    enum { N = 300 };
    char names[N][8];
    unsigned seed = 1;

    (void)state;
    for (int i = 0; i < N; i++) {
        int len = 1 + i % 6;

        for (int k = 0; k < len; k++) {
            seed = seed * 1103515245 + 12345;
            names[i][k] = "001a2\xC3"[(seed >> 16) % 6];
        }
        names[i][len] = '\0';
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            msp_str a = msp_str_of(names[i]), b = msp_str_of(names[j]);
            int ab = msp_str_cmp_natural(a, b);

            assert_int_equal(ab == 0, msp_str_eq(a, b));
            assert_int_equal(ab<0, msp_str_cmp_natural(b, a)> 0);
            for (int k = 0; k < N && ab < 0; k++)
                if (msp_str_cmp_natural(b, msp_str_of(names[k])) < 0)
                    assert_true(msp_str_cmp_natural(a, msp_str_of(names[k])) < 0);
        }
}

static void
a_directory_lists_its_names_in_order(void **state)
{
    const char *dir = scratch_path("list");
    const char *names[] = {"rank10", "rank2", ".hidden", "rank0"};
    msp_dir_list list;
    msp_error err;
    char path[600];

    (void)state;
    assert_int_equal(msp_path_make_dirs(dir, NULL), MSP_OK);
    assert_int_equal(msp_dir_list_read(&list, dir, NULL), MSP_OK);
    assert_int_equal(list.count, 0);
    msp_dir_list_release(&list);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(msp_dir_list_read(&list, dir, NULL), MSP_OK);
    assert_int_equal(list.count, 4);
    assert_string_equal(list.names[0], ".hidden");
    assert_string_equal(list.names[1], "rank0");
    assert_string_equal(list.names[2], "rank2");
    assert_string_equal(list.names[3], "rank10");
    msp_dir_list_release(&list);
    msp_dir_list_release(&list);
    assert_int_equal(msp_dir_list_read(&list, scratch_path("none"), &err), MSP_E_NOT_FOUND);
    assert_int_equal(msp_dir_list_read(&list, write_file("f", "", 0), &err), MSP_E_IO);
    for (int64_t n = 0; n < 6; n++) {
        int64_t live = msp_alloc_live();
        msp_status st;

        msp_alloc_fail_after(n);
        st = msp_dir_list_read(&list, dir, &err);
        msp_alloc_fail_after(-1);
        assert_int_equal(st, n < 5 ? MSP_E_NOMEM : MSP_OK);
        msp_dir_list_release(&list);
        assert_int_equal(msp_alloc_live(), live);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(paths_are_taken_apart_and_joined),        TEST(what_stands_at_a_path_is_told),
        TEST(directories_are_made_with_their_parents), TEST(names_are_ordered_by_number),
        TEST(the_order_does_not_contradict_itself),    TEST(a_directory_lists_its_names_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
