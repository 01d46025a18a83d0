/* test_construct.c - construct.json: what each call ran in, and files that do not say it. */
#include "unit.h"
#include "core/alloc.h"
#include "dump/construct.h"

static const char text[] = "{\"Torch.add.0.forward\": \"Module.fc.Linear.forward.0\","
                           "\"Module.fc.Linear.forward.0\": null,"
                           "\"Torch.mul.0.forward\": [\"Module.fc.Linear.forward.0\", 2],"
                           "\"Torch.sub.0.forward\": []}";

static void
assert_parent(const msp_construct *c, const char *name, const char *parent)
{
    assert_true(msp_str_eq(msp_construct_parent(c, msp_str_of(name)), msp_str_of(parent)));
}

static void
the_module_of_each_call_is_found(void **state)
{
    msp_construct c;
    msp_error err;

    (void)state;
    write_text("found/construct.json", text);
    assert_int_equal(msp_construct_open(&c, scratch_path("found/dump.json"), &err), MSP_OK);
    assert_int_equal(c.count, 4);
    assert_true(msp_str_eq(msp_construct_name(&c, 2), MSP_STR("Torch.mul.0.forward")));
    assert_parent(&c, "Torch.add.0.forward", "Module.fc.Linear.forward.0");
    assert_parent(&c, "Torch.mul.0.forward", "Module.fc.Linear.forward.0");
    assert_parent(&c, "Module.fc.Linear.forward.0", "");
    assert_parent(&c, "Torch.sub.0.forward", "");
    assert_parent(&c, "Torch.div.0.forward", "");
    msp_construct_close(&c);
    assert_parent(&c, "Torch.add.0.forward", "");
}

static void
a_file_that_is_missing_or_broken_is_an_error_only_where_it_is_needed(void **state)
{
    msp_construct c;
    msp_error err;

    (void)state;
    assert_int_equal(msp_construct_open(&c, scratch_path("none/dump.json"), &err), MSP_E_NOT_FOUND);
    msp_construct_close(&c);
    assert_true(msp_construct_open_if_any(&c, scratch_path("none/dump.json")));
    assert_int_equal(c.count, 0);
    write_text("broken/construct.json", "{\"a\": ");
    assert_int_equal(msp_construct_open(&c, scratch_path("broken/dump.json"), &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "broken/construct.json: "));
    msp_construct_close(&c);
    assert_true(msp_construct_open_if_any(&c, scratch_path("broken/dump.json")));
    write_text("list/construct.json", "[\"Torch.add.0.forward\"]");
    assert_int_equal(msp_construct_open(&c, scratch_path("list/dump.json"), &err), MSP_OK);
    assert_int_equal(c.count, 0);
    msp_construct_close(&c);
}

static void
cut_short(const char *path, void *payload)
{
    (void)payload;
    assert_int_equal(truncate(path, 4096), 0);
}

static void
a_file_that_is_cut_while_it_is_read_says_so(void **state)
{
    enum { SIZE = 1 << 17 };
    char *large = malloc(SIZE);
    msp_construct c;
    msp_error err;

    (void)state;
    assert_non_null(large);
    memset(large, ' ', SIZE);
    memcpy(large + SIZE - sizeof(text) + 1, text, sizeof(text) - 1);
    write_file("cut/construct.json", large, SIZE);
    msp_map_on_open(cut_short, NULL);
    assert_int_equal(msp_construct_open(&c, scratch_path("cut/dump.json"), &err), MSP_E_CHANGED);
    msp_map_on_open(NULL, NULL);
    assert_non_null(strstr(err.message, "was cut short while it was read"));
    msp_construct_close(&c);
    free(large);
}

static void
no_failing_allocation_leaks(void **state)
{
    const char *path = scratch_path("found/dump.json");
    int64_t live = msp_alloc_live();
    msp_status st = MSP_E_NOMEM;

    (void)state;
    for (int64_t n = 0; st == MSP_E_NOMEM && n < 100; n++) {
        msp_construct c;

        msp_alloc_fail_after(n);
        st = msp_construct_open(&c, path, NULL);
        msp_alloc_fail_after(-1);
        msp_construct_close(&c);
        assert_int_equal(msp_alloc_live(), live);
    }
    assert_int_equal(st, MSP_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_module_of_each_call_is_found),
        TEST(a_file_that_is_missing_or_broken_is_an_error_only_where_it_is_needed),
        TEST(a_file_that_is_cut_while_it_is_read_says_so),
        TEST(no_failing_allocation_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
