/* test_publish.c - promises of collect/publish.h: the file is whole at every moment, whatever was written ahead. */
#include "unit.h"
#include <fcntl.h>
#include <unistd.h>
#include "collect/publish.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"

static const msp_str HEAD = {"{\"data\": {", 10}, TAIL = {"\n}}", 3};

static void
create(msp_publish *p, const char *path)
{
    assert_int_equal(msp_publish_create(p, path, HEAD, TAIL, NULL), MSP_OK);
}

static void
append(msp_publish *p, const char *text)
{
    msp_error err;

    if (msp_publish_append(p, msp_str_of(text), &err) != MSP_OK)
        fail_msg("%s", err.message);
}

static void
assert_file(const char *path, const char *members)
{
    char want[256], *text;
    size_t size;

    snprintf(want, sizeof(want), "{\"data\": {%s\n}}", members);
    assert_int_equal(msp_file_read(&text, &size, path, 1 << 20, NULL), MSP_OK);
    assert_string_equal(text, want);
    msp_free(text);
}

static void
the_first_members_make_the_file_and_nothing_else(void **state)
{
    const char *path = scratch_path("first.json");
    msp_publish p;

    (void)state;
    write_file("first.json", "of an earlier run", 17);
    create(&p, path);
    assert_int_equal(msp_path_kind_of(scratch_path(".first.json.twin")), MSP_PATH_NONE);
    append(&p, "\"a\": 1");
    assert_file(path, "\"a\": 1");
    assert_int_equal(msp_path_kind_of(scratch_path(".first.json.twin")), MSP_PATH_NONE);
    append(&p, ",\"b\": 2"); /* now there is a twin */
    append(&p, ",\"c\": 3");
    assert_file(path, "\"a\": 1,\"b\": 2,\"c\": 3");
    msp_publish_close(&p);
    assert_int_equal(msp_path_kind_of(scratch_path(".first.json.twin")), MSP_PATH_NONE);
}

static void
an_empty_text_makes_a_valid_file(void **state)
{
    const char *path = scratch_path("none.json");
    msp_publish p;

    (void)state;
    create(&p, path);
    append(&p, "");
    assert_file(path, "");
    assert_false(p.any);
    append(&p, "\"a\": 1");
    assert_file(path, "\"a\": 1");
    msp_publish_close(&p);
}

static void
what_is_prepared_is_not_seen_before_it_is_appended(void **state)
{
    const char *path = scratch_path("ahead.json");
    msp_publish p;

    (void)state;
    create(&p, path);
    msp_publish_prepare(&p, MSP_STR("\"a\": 1"));
    msp_publish_prepare(&p, MSP_STR("\"a\": 1,\"b\": 2"));
    assert_int_equal(msp_path_kind_of(path), MSP_PATH_NONE);
    append(&p, "\"a\": 1,\"b\": 2,\"c\": 3");
    assert_file(path, "\"a\": 1,\"b\": 2,\"c\": 3");
    msp_publish_prepare(&p, MSP_STR(",\"d\": 4"));
    assert_file(path, "\"a\": 1,\"b\": 2,\"c\": 3");
    append(&p, ",\"d\": 4");
    append(&p, ",\"e\": 5");
    assert_file(path, "\"a\": 1,\"b\": 2,\"c\": 3,\"d\": 4,\"e\": 5");
    msp_publish_close(&p);
}

static void
a_preview_takes_the_place_of_what_was_prepared(void **state)
{
    const char *path = scratch_path("shown.json");
    msp_publish p;

    (void)state;
    create(&p, path);
    msp_publish_prepare(&p, MSP_STR("\"a\": 1,\"long\": 22222222"));
    assert_int_equal(msp_publish_preview(&p, MSP_STR("\"a\": null"), NULL), MSP_OK);
    assert_file(path, "\t\"a\": null");
    append(&p, "\"a\": 1");
    assert_file(path, "\"a\": 1");
    msp_publish_prepare(&p, MSP_STR(",\"b\": 2"));
    msp_publish_close(&p);
    assert_int_equal(msp_publish_reopen(&p, path, TAIL, NULL), MSP_OK); /* what was only prepared is gone */
    append(&p, ",\"c\": 3");
    assert_file(path, "\"a\": 1,\"c\": 3");
    msp_publish_close(&p);
}

static void
who_is_half_through_the_file_reads_it_to_its_end(void **state)
{
    const char *path = scratch_path("read.json");
    char text[256] = "";
    msp_publish p;
    int fd;

    (void)state;
    create(&p, path);
    append(&p, "\"a\": 1");
    append(&p, ",\"b\": 2");
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, 10), 10);
    append(&p, ",\"c\": 3");
    append(&p, ",\"d\": 4");
    msp_publish_prepare(&p, MSP_STR(",\"e\": 5"));
    assert_true(read(fd, text + 10, sizeof(text) - 11) > 0);
    close(fd);
    assert_string_equal(text, "{\"data\": {\"a\": 1,\"b\": 2\n}}");
    append(&p, ",\"e\": 5");
    assert_file(path, "\"a\": 1,\"b\": 2,\"c\": 3,\"d\": 4,\"e\": 5");
    msp_publish_close(&p);
}

static void
a_file_can_be_made_before_there_is_text(void **state)
{
    const char *path = scratch_path("early.json");
    msp_publish p;

    (void)state;
    create(&p, path);
    msp_publish_prepare(&p, MSP_STR(""));
    assert_int_equal(msp_path_kind_of(path), MSP_PATH_NONE);
    assert_int_equal(msp_path_kind_of(scratch_path(".early.json.twin")), MSP_PATH_FILE);
    append(&p, "\"a\": 1");
    assert_file(path, "\"a\": 1");
    assert_int_equal(msp_path_kind_of(scratch_path(".early.json.twin")), MSP_PATH_NONE);
    assert_int_equal(msp_publish_preview(&p, MSP_STR(",\"long\": 22222222"), NULL), MSP_OK);
    append(&p, ",\"b\": 2"); /* shorter than what was shown */
    assert_file(path, "\"a\": 1,\"b\": 2");
    append(&p, ",\"c\": 3");
    assert_file(path, "\"a\": 1,\"b\": 2,\"c\": 3");
    msp_publish_close(&p);
}

static void
a_twin_that_a_killed_writer_left_is_removed(void **state)
{
    const char *path = scratch_path("left.json");
    msp_publish p;

    (void)state;
    create(&p, path);
    append(&p, "\"a\": 1");
    msp_publish_close(&p);
    write_file(".left.json.twin", "half", 4);
    assert_int_equal(msp_publish_reopen(&p, path, TAIL, NULL), MSP_OK);
    assert_int_equal(msp_path_kind_of(scratch_path(".left.json.twin")), MSP_PATH_NONE);
    msp_publish_close(&p);
    assert_file(path, "\"a\": 1");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_members_make_the_file_and_nothing_else),   TEST(an_empty_text_makes_a_valid_file),
        TEST(what_is_prepared_is_not_seen_before_it_is_appended), TEST(a_preview_takes_the_place_of_what_was_prepared),
        TEST(who_is_half_through_the_file_reads_it_to_its_end),   TEST(a_file_can_be_made_before_there_is_text),
        TEST(a_twin_that_a_killed_writer_left_is_removed),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
