/* test_dump_layout.c - where msp_dump_find() finds dumps. */
#include "unit.h"
#include <sys/stat.h>
#include "core/alloc.h"
#include "msprobe/dump.h"

/* An empty file at scratch/<name>, with its folders. */
static msp_dump_layout
find(const char *name)
{
    msp_dump_layout l;
    msp_error err;

    if (msp_dump_find(&l, scratch_path(name), &err) != MSP_OK)
        fail_msg("%s", err.message);
    return l;
}

static void
a_step_has_its_ranks_in_the_order_of_their_numbers(void **state)
{
    static const char *const names[] = {"rank", "rank0", "rank2", "rank10"};
    msp_dump_layout l;

    (void)state;
    write_text("a/step0/rank10/dump.json", "");
    write_text("a/step0/rank2/dump.json", "");
    write_text("a/step0/rank/dump.json", "");
    write_text("a/step0/rank0/dump.json", "");
    l = find("a/step0");
    assert_int_equal(l.count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(l.places[i].rank_name, names[i]);
        assert_string_equal(l.places[i].step_name, "");
    }
    assert_int_equal(l.places[0].rank, MSP_DUMP_NO_NUMBER);
    assert_int_equal(l.places[3].rank, 10);
    msp_dump_layout_release(&l);
}

static void
a_whole_dump_has_its_steps(void **state)
{
    msp_dump_layout l;

    (void)state;
    write_text("b/step2/rank0/dump.json", "");
    write_text("b/step10/rank0/dump.json", "");
    write_text("b/step10/rank0/debug.json", "");
    l = find("b");
    assert_int_equal(l.count, 3);
    assert_int_equal(l.places[0].step, 2);
    assert_int_equal(l.places[1].step, 10);
    assert_int_equal(l.places[1].kind, MSP_DUMP_API);
    assert_int_equal(l.places[2].kind, MSP_DUMP_DEBUG);
    msp_dump_layout_release(&l);
}

static void
folders_named_after_processes_count_as_ranks_without_number(void **state)
{
    msp_dump_layout l;

    (void)state;
    write_text("c/step0/proc4711/dump.json", "");
    l = find("c/step0");
    assert_int_equal(l.count, 1);
    assert_string_equal(l.places[0].rank_name, "proc4711");
    assert_int_equal(l.places[0].rank, MSP_DUMP_NO_NUMBER);
    msp_dump_layout_release(&l);
}

static void
the_mixed_layout_has_groups(void **state)
{
    msp_dump_layout l;

    (void)state;
    write_text("d/pynative/step0/rank/dump.json", "");
    write_text("d/graph/step0/rank/dump.json", "");
    l = find("d");
    assert_int_equal(l.count, 2);
    assert_string_equal(l.places[0].group, "graph");
    assert_string_equal(l.places[1].group, "pynative");
    assert_string_equal(l.places[1].step_name, "step0");
    msp_dump_layout_release(&l);
}

static void
a_rank_folder_and_a_file_stand_for_themselves(void **state)
{
    msp_dump_layout l;

    (void)state;
    write_text("e/rank0/dump.json", "");
    write_text("e/rank0/my_debug.json", "");
    l = find("e/rank0");
    assert_int_equal(l.count, 1);
    assert_string_equal(l.places[0].rank_name, "");
    msp_dump_layout_release(&l);
    l = find("e/rank0/my_debug.json");
    assert_int_equal(l.count, 1);
    assert_int_equal(l.places[0].kind, MSP_DUMP_DEBUG);
    msp_dump_layout_release(&l);
}

static void
what_is_no_part_of_a_dump_is_a_stray(void **state)
{
    msp_dump_layout l;

    (void)state;
    write_text("f/step0/rank0/dump.json", "");
    write_text("f/step0/notes.txt", "");
    write_text("f/step0/ranked/dump.json", "");
    write_text("f/step0/proc1/empty", "");
    l = find("f/step0");
    assert_int_equal(l.count, 1);
    assert_int_equal(l.nstrays, 3);
    msp_dump_layout_release(&l);
}

static void
a_rank_without_files_is_a_place_with_an_error(void **state)
{
    msp_dump_layout l;

    (void)state;
    write_text("j/step0/rank0/dump.json", "");
    write_text("j/step0/rank1/stack.json", "");
    l = find("j/step0");
    assert_int_equal(l.count, 2);
    assert_null(l.places[0].error);
    assert_string_equal(l.places[1].path, scratch_path("j/step0/rank1"));
    assert_int_equal(l.places[1].rank, 1);
    assert_non_null(strstr(l.places[1].error, "rank1: holds no dump.json"));
    msp_dump_layout_release(&l);
}

static void
a_path_without_dumps_is_told_with_what_it_holds(void **state)
{
    msp_dump_layout l;
    msp_error err;

    (void)state;
    write_text("g/train.log", "");
    assert_int_equal(msp_dump_find(&l, scratch_path("g"), &err), MSP_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "train.log"));
    assert_int_equal(msp_dump_find(&l, scratch_path("g/none"), &err), MSP_E_NOT_FOUND);
    assert_int_equal(msp_dump_find(&l, scratch_path("g/train.log"), &err), MSP_E_INVALID);
    assert_null(l.places);
}

static void
what_everybody_may_write_and_somebody_else_owns_is_refused(void **state)
{
    msp_dump_layout l;
    msp_error err;

    (void)state;
    write_text("h/dump.json", "");
    assert_int_equal(chmod(scratch_path("h/dump.json"), 0666), 0);
    assert_int_equal(msp_dump_find(&l, scratch_path("h/dump.json"), &err), MSP_OK); /* our own */
    msp_dump_layout_release(&l);
    if (geteuid() != 0 || chown(scratch_path("h/dump.json"), 12345, 12345) != 0)
        skip();
    assert_int_equal(msp_dump_find(&l, scratch_path("h/dump.json"), &err), MSP_E_INVALID);
    assert_int_equal(chmod(scratch_path("h/dump.json"), 0644), 0);
    assert_int_equal(msp_dump_find(&l, scratch_path("h/dump.json"), &err), MSP_OK);
    msp_dump_layout_release(&l);
}

static void
no_failing_allocation_leaks(void **state)
{
    int64_t live = msp_alloc_live();
    msp_status st = MSP_E_NOMEM;

    (void)state;
    write_text("i/step0/rank0/dump.json", "");
    write_text("i/step0/stray", "");
    write_text("i/step0/rank1/stack.json", "");
    for (int64_t n = 0; st != MSP_OK && n < 1000; n++) {
        msp_dump_layout l;

        msp_alloc_fail_after(n);
        st = msp_dump_find(&l, scratch_path("i"), NULL);
        msp_alloc_fail_after(-1);
        msp_dump_layout_release(&l);
        assert_int_equal(msp_alloc_live(), live);
    }
    assert_int_equal(st, MSP_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_step_has_its_ranks_in_the_order_of_their_numbers),
        TEST(a_whole_dump_has_its_steps),
        TEST(folders_named_after_processes_count_as_ranks_without_number),
        TEST(the_mixed_layout_has_groups),
        TEST(a_rank_folder_and_a_file_stand_for_themselves),
        TEST(what_is_no_part_of_a_dump_is_a_stray),
        TEST(a_rank_without_files_is_a_place_with_an_error),
        TEST(a_path_without_dumps_is_told_with_what_it_holds),
        TEST(what_everybody_may_write_and_somebody_else_owns_is_refused),
        TEST(no_failing_allocation_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
