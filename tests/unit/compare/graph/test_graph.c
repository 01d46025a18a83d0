/* test_graph.c - folders of static-graph dumps: their names, their tables, and which of them belong together. */
#include "unit.h"
#include <sys/stat.h>
#include "compare/graph/graph.h"
#include "core/alloc.h"

/* ---- names --------------------------------------------------------------------------------------------------- */

static void
is_key(const char *name, const char *key, int64_t time)
{
    msp_buf scratch = {0};
    int64_t got = -1;

    if (!msp_graph_name(msp_str_of(name), &scratch, &got))
        fail_msg("%s", name);
    assert_string_equal(scratch.p, key);
    assert_int_equal(got, time);
    msp_buf_release(&scratch);
}

static void
file_names_give_key_and_time(void **state)
{
    static const char *const none[] = {"",
                                       ".npy",
                                       "a.npy",
                                       "MatMul.op.0.0.17.input.0.npy",
                                       "MatMul.op.0.0.x.input.0.DefaultFormat.npy",
                                       "MatMul.op.0.0.17.inner.0.DefaultFormat.npy",
                                       "MatMul.op.0.0.17.input.0.DefaultFormat.bin",
                                       "MatMul..0.0.17.input.0.DefaultFormat.npy",
                                       "MatMul.op.0.0.99999999999999999999.input.0.DefaultFormat.npy",
                                       "......npy",
                                       "MatMul.op.0.0.17.input..npy"};
    msp_buf scratch = {0};
    int64_t time;

    (void)state;
    is_key("MatMul.Default_fc1-Dense_MatMul-op0.0.0.1794790643130200.input.1.DefaultFormat.Float32.npy",
           "Default_fc1-Dense_MatMul-op0.0.input.1.DefaultFormat", 1794790643130200);
    is_key("Add.op7.12.3.17.output.0.DefaultFormat.npy", "op7.12.output.0", 17);
    is_key("Add.op7.12.3.17.5.output.0.1.ND.npy", "op7.12.output.0.1", 17);
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_false(msp_graph_name(msp_str_of(none[i]), &scratch, &time));
    msp_buf_release(&scratch);
}

/* ---- folders ------------------------------------------------------------------------------------------------- */

static msp_graph_items
read_folder(const char *name, bool common)
{
    msp_dump_place place = {.path = (char *)scratch_path(name)};
    msp_graph_items items;
    msp_error err;

    if (msp_graph_read(&items, &place, 1, common, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return items;
}

static bool
key_is(const msp_graph_items *t, size_t i, const char *key, size_t index)
{
    return i < t->count && msp_str_eq(t->items[i].key, msp_str_of(key)) && t->items[i].index == index;
}

static void
tensors_of_one_key_are_counted_in_time(void **state)
{
    msp_graph_items t;

    (void)state;
    write_text("time/Add.op.0.0.200.input.0.ND.npy", "");
    write_text("time/Add.op.0.0.30.input.0.ND.npy", "");
    write_text("time/Add.op.0.0.9.output.0.ND.npy", "");
    write_text("time/readme.txt", "");
    t = read_folder("time", false);
    assert_int_equal(t.count, 3);
    assert_true(key_is(&t, 0, "op.0.input.0", 0) && t.items[0].time == 30);
    assert_true(key_is(&t, 1, "op.0.input.0", 1) && t.items[1].time == 200);
    assert_true(key_is(&t, 2, "op.0.output.0", 0));
    msp_graph_items_release(&t);
}

static void
mapping_csv_gives_long_names_back(void **state)
{
    msp_graph_items t;

    (void)state;
    write_text("mapped/0001.npy", "");
    write_text("mapped/mapping.csv", "hash,name\n0001.npy,Add.a_very_long_name.0.0.30.input.0.ND.npy\nalone\n");
    t = read_folder("mapped", false);
    assert_int_equal(t.count, 1);
    assert_true(key_is(&t, 0, "a_very_long_name.0.input.0", 0));
    assert_non_null(strstr(t.items[0].path, "/0001.npy"));
    msp_graph_items_release(&t);
}

static void
statistic_csv_is_read_by_its_titles(void **state)
{
    msp_graph_items t;

    (void)state;
    write_text("stat/statistic.csv",
               "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,"
               "Min Value,Avg Value\nAdd,a/b,0,0,7,output,0,4,float32,\"(2,3)\",1.5,-2,nan\n");
    t = read_folder("stat", false);
    assert_true(t.statistics);
    assert_int_equal(t.count, 1);
    assert_true(key_is(&t, 0, "a/b.0.output.0", 0));
    assert_true(msp_str_eq(t.items[0].shape, MSP_STR("(2,3)")));
    assert_int_equal(t.items[0].stats[MSP_STAT_MAX].kind, MSP_CELL_FLOAT);
    assert_int_equal(t.items[0].stats[MSP_STAT_MIN].as.i, -2);
    assert_int_equal(t.items[0].stats[MSP_STAT_NORM].kind, MSP_CELL_EMPTY);
    msp_graph_items_release(&t);
}

static void
a_table_without_its_columns_is_refused(void **state)
{
    msp_dump_place place = {.path = (char *)scratch_path("broken")};
    msp_graph_items t;
    msp_error err;

    (void)state;
    write_text("broken/statistic.csv", "Op Type,Op Name\nAdd,x\n");
    assert_int_equal(msp_graph_read(&t, &place, 1, false, &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "broken/statistic.csv: has no column \"Task ID\""));
    msp_graph_items_release(&t);
}

static void
plain_files_lose_their_last_two_parts(void **state)
{
    msp_graph_items t;

    (void)state;
    write_text("plain/loss_x_10_0.npy", "");
    write_text("plain/loss_x_9_0.npy", "");
    write_text("plain/a_b.npy", "");
    write_text("plain/none.npy", "");
    t = read_folder("plain", true);
    assert_int_equal(t.count, 3);
    assert_true(key_is(&t, 0, "", 0));
    assert_true(key_is(&t, 1, "loss_x", 0) && strstr(t.items[1].path, "loss_x_9_0") != NULL);
    assert_true(key_is(&t, 2, "loss_x", 1));
    msp_graph_items_release(&t);
}

/* ---- pairs --------------------------------------------------------------------------------------------------- */

static msp_plan
make_plan(msp_compare_options *opt, const char *npu, const char *bench)
{
    msp_plan plan;
    msp_error err;

    opt->npu_path = scratch_path(npu);
    opt->bench_path = scratch_path(bench);
    if (msp_graph_plan(&plan, opt, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return plan;
}

static void
folders_are_paired_by_rank_and_step(void **state)
{
    static const int64_t ranks[] = {1}, steps[] = {10};
    msp_compare_options opt = {.has_rank_id = true};
    msp_plan plan;

    (void)state;
    write_text("n/rank_0/Net/0/0/x.npy", "");
    write_text("n/rank_0/Net/1/0/x.npy", "");
    write_text("n/rank_1/Net/0/2/x.npy", "");
    write_text("n/rank_1/Net/0/10/x.npy", "");
    write_text("n/rank_0/execution_order/x.csv", "");
    write_text("b/rank_0/Net/0/0/x.npy", "");
    write_text("b/rank_1/Net/0/10/x.npy", "");
    plan = make_plan(&opt, "n", "b");
    assert_int_equal(plan.npairs, 3);
    assert_string_equal(plan.pairs[0].label, "rank0 step0");
    assert_string_equal(plan.pairs[0].stem, "compare_result_0_0");
    assert_int_equal(plan.pairs[0].nnpu, 2);
    assert_int_equal(plan.pairs[0].nbench, 1);
    assert_string_equal(plan.pairs[1].label, "rank1 step2");
    assert_null(plan.pairs[1].bench);
    assert_string_equal(plan.pairs[2].label, "rank1 step10");
    msp_plan_release(&plan);
    opt.rank_id = ranks;
    opt.nrank_id = 1;
    opt.step_id = steps;
    opt.nstep_id = 1;
    plan = make_plan(&opt, "n", "b");
    assert_int_equal(plan.npairs, 1);
    msp_plan_release(&plan);
}

static void
without_rank_folders_numbers_above_the_step_are_the_rank(void **state)
{
    msp_compare_options opt = {.has_step_id = true};
    msp_plan plan;

    (void)state;
    write_text("ge/20250101/3/Net/1/0/x.npy", "");
    write_text("ge2/20250101/3/Net/1/0/x.npy", "");
    plan = make_plan(&opt, "ge", "ge2");
    assert_int_equal(plan.npairs, 1);
    assert_int_equal(plan.pairs[0].npu->rank, 3);
    msp_plan_release(&plan);
}

static void
plain_trees_are_walked_side_by_side(void **state)
{
    msp_compare_options opt = {.common = true, .output_dir = "out"};
    msp_plan plan;

    (void)state;
    write_text("ct/a/b/x_0_0.npy", "");
    write_text("ct/x_0_0.npy", "");
    write_text("cu/a/b/x_0_0.npy", "");
    write_text("cu/x_0_0.npy", "");
    plan = make_plan(&opt, "ct", "cu");
    assert_int_equal(plan.npairs, 2);
    assert_string_equal(plan.pairs[0].label, "");
    assert_string_equal(plan.pairs[0].out_dir, "out");
    assert_string_equal(plan.pairs[1].label, "a/b");
    assert_string_equal(plan.pairs[1].out_dir, "out/a/b");
    msp_plan_release(&plan);
}

static void
names_of_results_have_one_slash_and_a_time_if_wanted(void **state)
{
    static const struct {
        const char *dir, *time, *want;
    } cases[] = {{"out", "2024", "out/result_2024.csv"},
                 {"out/", "2024", "out/result_2024.csv"},
                 {"out/", NULL, "out/result.csv"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *path = msp_plan_file(cases[i].dir, "result", cases[i].time, "csv");

        assert_string_equal(path, cases[i].want);
        msp_free(path);
    }
}

static void
what_is_missing_is_named(void **state)
{
    msp_compare_options opt = {.has_rank_id = true, .npu_path = "/nonexistent", .bench_path = scratch_dir()};
    msp_plan plan;
    msp_error err;

    (void)state;
    assert_int_equal(msp_graph_plan(&plan, &opt, &err), MSP_E_NOT_FOUND);
    assert_string_equal(err.message, "/nonexistent: there is no such path");
    msp_plan_release(&plan);
    write_text("empty/x.txt", "");
    opt.npu_path = scratch_path("empty");
    assert_int_equal(msp_graph_plan(&plan, &opt, &err), MSP_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "there is no folder rank_<N>/.../<step> below it"));
    msp_plan_release(&plan);
    opt.npu_path = scratch_path("empty/x.txt");
    assert_int_equal(msp_graph_plan(&plan, &opt, &err), MSP_E_INVALID);
    msp_plan_release(&plan);
}

static msp_status
plan_and_read(void)
{
    msp_compare_options opt = {.has_rank_id = true,
                               .npu_path = scratch_path("n"),
                               .bench_path = scratch_path("b"),
                               .output_dir = "out"};
    msp_dump_place places[] = {{.path = (char *)scratch_path("mapped")}, {.path = (char *)scratch_path("stat")}};
    msp_graph_items t = {0};
    msp_plan plan;
    msp_status st = msp_graph_plan(&plan, &opt, NULL);

    msp_plan_release(&plan);
    for (int i = 0; st == MSP_OK && i < 2; i++) {
        st = msp_graph_read(&t, &places[i], 1, false, NULL);
        msp_graph_items_release(&t);
    }
    return st;
}

static void
every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    int64_t live = msp_alloc_live(), n;
    msp_status st = MSP_E_NOMEM;

    (void)state;
    for (n = 0; n < 1000 && st == MSP_E_NOMEM; n++) {
        msp_alloc_fail_after(n);
        st = plan_and_read();
        msp_alloc_fail_after(-1);
        assert_int_equal(msp_alloc_live(), live);
    }
    assert_int_equal(st, MSP_OK);
    assert_true(n > 30);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(file_names_give_key_and_time),
        TEST(tensors_of_one_key_are_counted_in_time),
        TEST(mapping_csv_gives_long_names_back),
        TEST(statistic_csv_is_read_by_its_titles),
        TEST(a_table_without_its_columns_is_refused),
        TEST(plain_files_lose_their_last_two_parts),
        TEST(folders_are_paired_by_rank_and_step),
        TEST(without_rank_folders_numbers_above_the_step_are_the_rank),
        TEST(plain_trees_are_walked_side_by_side),
        TEST(names_of_results_have_one_slash_and_a_time_if_wanted),
        TEST(what_is_missing_is_named),
        TEST(every_failed_allocation_is_reported_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
