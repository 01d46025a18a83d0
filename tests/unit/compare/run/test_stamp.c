/* test_stamp.c - the second that names a run's files belongs to that run alone. */
#include "unit.h"
#include <fcntl.h>
#include <sys/file.h>
#include "compare/run/stamp.h"
#include "core/path.h"

static bool
none_taken(const char *text, void *payload)
{
    (void)text, (void)payload;
    return false;
}

static void
runs_that_share_one_of_their_folders_get_different_seconds(void **state)
{
    char out[512], step[520];
    const char *both[] = {out, step}, *inner[] = {step};
    msp_stamp a, b;
    msp_error err;

    (void)state;
    snprintf(out, sizeof(out), "%s", scratch_path("shared"));
    snprintf(step, sizeof(step), "%s/step0", out);
    assert_int_equal(msp_stamp_claim(&a, both, 2, "20240229235959", none_taken, NULL, &err), MSP_OK);
    assert_string_equal(a.text, "20240229235959");
    assert_int_equal(msp_stamp_claim(&b, inner, 1, "20240229235959", none_taken, NULL, &err), MSP_OK);
    assert_string_equal(b.text, "20240301000000");
    msp_stamp_release(&b);
    msp_stamp_release(&a);
    assert_int_equal(msp_path_kind_of(out), MSP_PATH_NONE); /* nothing was written, so nothing is left */
    assert_int_equal(msp_stamp_claim(&b, inner, 1, "20240229235959", none_taken, NULL, &err), MSP_OK);
    assert_int_equal(msp_stamp_claim(&a, both, 2, "20240229235959", none_taken, NULL, &err), MSP_OK);
    assert_string_equal(a.text, "20240301000000");
    msp_stamp_release(&a);
    msp_stamp_release(&b);
}

static void
one_folder_by_two_names_is_claimed_once(void **state)
{
    char out[512], slash[520], dot[520];
    const char *dirs[] = {out, slash, dot};
    msp_stamp s;
    msp_error err;

    (void)state;
    snprintf(out, sizeof(out), "%s", scratch_path("twice"));
    snprintf(slash, sizeof(slash), "%s/", out);
    snprintf(dot, sizeof(dot), "%s/.", out);
    assert_int_equal(msp_stamp_claim(&s, dirs, 3, "20240229235959", none_taken, NULL, &err), MSP_OK);
    assert_string_equal(s.text, "20240229235959");
    msp_stamp_release(&s);
    assert_int_equal(msp_path_kind_of(out), MSP_PATH_NONE);
}

static void
what_a_killed_run_has_left_of_its_claim_is_taken_away(void **state)
{
    static const char *const names[] = {"killed/.msprobe_20240101000000", "killed/.msprobe_20240229235959",
                                        "killed/.msprobe_20240101000001", "killed/.msprobe_notes",
                                        "killed/.msprobe_20240101000002"};
    const bool stays[] = {false, false, true, true, true}; /* the third is locked, the last has something in it */
    char dir[512];
    const char *dirs[] = {dir};
    msp_stamp s;
    msp_error err;
    int fd;

    (void)state;
    for (int i = 0; i < 5; i++)
        write_text(names[i], i == 4 ? "mine" : "");
    snprintf(dir, sizeof(dir), "%s", scratch_path("killed"));
    fd = open(scratch_path(names[2]), O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(msp_stamp_claim(&s, dirs, 1, "20240229235959", none_taken, NULL, &err), MSP_OK);
    assert_string_equal(s.text, "20240229235959");
    msp_stamp_release(&s);
    for (int i = 0; i < 5; i++)
        assert_int_equal(msp_path_kind_of(scratch_path(names[i])) == MSP_PATH_FILE, stays[i]);
    close(fd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(runs_that_share_one_of_their_folders_get_different_seconds),
        TEST(one_folder_by_two_names_is_claimed_once),
        TEST(what_a_killed_run_has_left_of_its_claim_is_taken_away),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
