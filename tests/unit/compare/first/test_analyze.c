/* test_analyze.c - the first call that differs, over ranks that talk to each other in every way there is. */
#include "unit.h"
#include <math.h>
#include "compare/first/analyze.h"
#include "core/alloc.h"
#include "core/file.h"
#include "text/json.h"

static const msp_column columns[] = {{"NPU Name", 0},        {"MaxRelativeErr", 0},  {"MinRelativeErr", 0},
                                     {"MeanRelativeErr", 0}, {"NormRelativeErr", 0}, {"NPU max", 0},
                                     {"NPU min", 0},         {"NPU mean", 0},        {"NPU l2norm", 0},
                                     {"Result", 0},          {"NPU_Stack_Info", 0}};
static const msp_column md5_columns[] = {{"NPU Name", 0}, {"NPU MD5", 0}, {"Result", 0}};

enum { MAX_RANKS = 4 };

static msp_da_rank *ranks[MAX_RANKS];
static size_t nranks;
static msp_compare_result result;

static msp_cell
text(const char *s)
{
    return msp_cell_text(s, strlen(s));
}

/* ---- building dumps ------------------------------------------------------------------------------------------ */

static void
begin(size_t n)
{
    memset(ranks, 0, sizeof(ranks));
    memset(&result, 0, sizeof(result));
    nranks = n;
    for (size_t i = 0; i < n; i++) {
        char name[32];

        snprintf(name, sizeof(name), "rank%zu.json", i);
        assert_int_equal(msp_da_rank_open(&ranks[i], scratch_path(name), MSP_MODE_STATISTICS, (int64_t)i, columns,
                                          sizeof(columns) / sizeof(columns[0]), NULL),
                         MSP_OK);
    }
}

static void
row(size_t rank, const char *api, const char *suffix, const char *state, const char *rel, const char *value)
{
    static const msp_str stack[] = {{"File a.py, line 1, in f, \n y = x", 33}};
    char name[128];
    msp_cell cells[sizeof(columns) / sizeof(columns[0])];
    msp_da_row r = {.api = msp_str_of(api), .state = msp_str_of(state), .cells = cells};

    snprintf(name, sizeof(name), "%s.%s", api, suffix);
    cells[0] = text(name);
    for (int i = 1; i <= 4; i++)
        cells[i] = text(i == 4 ? rel : "N/A");
    for (int i = 5; i <= 8; i++)
        cells[i] = value != NULL ? text(value) : msp_cell_float(1.5);
    cells[9] = text("");
    cells[10] = text("N/A");
    if (strcmp(state, "input") == 0) {
        r.stack = stack;
        r.nstack = 1;
    }
    assert_int_equal(msp_da_rank_row(ranks[rank], &r, NULL), MSP_OK);
}

/* A compute call, the same on both sides or not. */
static void
compute(size_t rank, const char *api, bool same)
{
    row(rank, api, "input.0", "input", "0.0%", NULL);
    row(rank, api, "output.0", "output", same ? "50.0%" : "50.1%", NULL);
}

/* A communication call with one argument ("group", "src", "dst", or "" for none). */
static void
comm(size_t rank, const char *api, const char *argument, const char *value, bool same)
{
    char suffix[32];

    row(rank, api, "input.0", "input", "0.0%", NULL);
    if (argument[0] != '\0') {
        snprintf(suffix, sizeof(suffix), "input.%s", argument);
        row(rank, api, suffix, "input", "N/A", value);
    }
    row(rank, api, "output.0", "output", same ? "0.0%" : "100.0%", NULL);
}

/* "rank:name rank:name" of what was found, in one of two buffers. */
static const char *
analyse(void)
{
    static char text_of[256];

    for (size_t i = 0; i < nranks; i++)
        assert_int_equal(msp_da_rank_finish(ranks[i], NULL), MSP_OK);
    assert_int_equal(msp_da_run(&result, ranks, nranks, scratch_dir(), NULL), MSP_OK);
    text_of[0] = '\0';
    for (size_t i = 0; i < result.nfirst; i++) {
        size_t len = strlen(text_of);

        snprintf(text_of + len, sizeof(text_of) - len, "%s%lld:%s", i > 0 ? " " : "", (long long)result.first[i].rank,
                 result.first[i].op_name);
    }
    return text_of;
}

static void
end(void)
{
    for (size_t i = 0; i < nranks; i++)
        msp_da_rank_close(ranks[i]);
    for (size_t i = 0; i < result.nfirst; i++) {
        for (size_t k = 0; k < result.first[i].nstack; k++)
            msp_free(result.first[i].stack[k]);
        msp_free(result.first[i].stack);
        msp_free(result.first[i].op_name);
    }
    msp_free(result.first);
    for (size_t i = 0; i < result.nfiles; i++)
        msp_free(result.files[i]);
    msp_free(result.files);
}

/* ---- stages -------------------------------------------------------------------------------------------------- */

static void
a_single_rank_without_communication_names_its_first_differing_call(void **state)
{
    (void)state;
    begin(1);
    compute(0, "Functional.linear.0.forward", true);
    compute(0, "Functional.relu.0.forward", false);
    compute(0, "Functional.gelu.0.forward", false);
    assert_string_equal(analyse(), "0:Functional.relu.0.forward");
    assert_string_equal(result.first_stage, "before");
    assert_int_equal(result.first[0].nstack, 1);
    assert_int_equal(result.nfiles, 1);
    end();
}

static void
before_communication_every_rank_reports_its_own(void **state)
{
    (void)state;
    begin(3);
    for (size_t i = 0; i < 3; i++) {
        compute(i, "Functional.linear.0.forward", i == 1);
        comm(i, "Distributed.all_reduce.0.forward", "group", "[0, 1, 2]", true);
        compute(i, "Functional.relu.0.forward", false);
    }
    assert_string_equal(analyse(), "0:Functional.linear.0.forward 2:Functional.linear.0.forward");
    end();
}

static void
nothing_that_differs_writes_no_report(void **state)
{
    (void)state;
    begin(2);
    for (size_t i = 0; i < 2; i++) {
        compute(i, "Functional.linear.0.forward", true);
        comm(i, "Distributed.all_reduce.0.forward", "", NULL, true);
    }
    assert_string_equal(analyse(), "");
    assert_int_equal(result.nfiles, 0);
    assert_null(result.first_stage);
    end();
}

static void
between_communications_the_first_compute_call_wins_over_the_communication_it_feeds(void **state)
{
    (void)state;
    begin(2);
    for (size_t i = 0; i < 2; i++) {
        compute(i, "Functional.linear.0.forward", true);
        compute(i, "Torch.empty.0.forward", false);
        comm(i, "Distributed.all_reduce.0.forward", "group", "[0, 1]", true);
        compute(i, "Functional.gelu.0.forward", i == 0);
        compute(i, "Functional.softmax.0.forward", i == 0);
        comm(i, "Distributed.all_gather.0.forward", "group", "[0, 1]", false);
        compute(i, "Functional.relu.0.forward", false);
    }
    assert_string_equal(analyse(), "1:Functional.gelu.0.forward");
    assert_string_equal(result.first_stage, "during");
    end();
}

static void
ties_in_one_layer_are_all_reported(void **state)
{
    (void)state;
    begin(2);
    for (size_t i = 0; i < 2; i++) {
        comm(i, "Distributed.all_reduce.0.forward", "", NULL, true);
        compute(i, "Functional.gelu.0.forward", false);
        comm(i, "Distributed.all_reduce.1.forward", "", NULL, true);
    }
    assert_string_equal(analyse(), "0:Functional.gelu.0.forward 1:Functional.gelu.0.forward");
    end();
}

static void
after_the_last_communication_each_rank_reports_its_own(void **state)
{
    (void)state;
    begin(2);
    for (size_t i = 0; i < 2; i++) {
        comm(i, "Distributed.all_reduce.0.forward", "", NULL, true);
        compute(i, "Functional.gelu.0.forward", i == 0);
        compute(i, "Functional.relu.0.forward", false);
    }
    assert_string_equal(analyse(), "0:Functional.relu.0.forward 1:Functional.gelu.0.forward");
    assert_string_equal(result.first_stage, "after");
    end();
}

/* ---- who talks to whom --------------------------------------------------------------------------------------- */

/*
 * A pipeline of three: forwards 0 -> 1 -> 2, then backwards. Stage 2 goes wrong between its two communications; stages
 * 1 and 0 only inherit it, although their own count of communications is smaller or equal.
 */
static void
a_pipeline_is_ordered_by_its_messages_not_by_each_ranks_own_count(void **state)
{
    (void)state;
    begin(3);
    comm(0, "Distributed.send.0.forward", "dst", "1", true);
    comm(0, "Distributed.recv.0.forward", "src", "1", false);
    compute(0, "Functional.linear.0.backward", false);
    comm(0, "Distributed.all_reduce.0.forward", "", NULL, false);

    comm(1, "Distributed.recv.0.forward", "src", "0", true);
    comm(1, "Distributed.send.0.forward", "dst", "2", true);
    comm(1, "Distributed.recv.1.forward", "src", "2", false);
    compute(1, "Functional.linear.0.backward", false);
    comm(1, "Distributed.send.1.forward", "dst", "0", false);
    comm(1, "Distributed.all_reduce.0.forward", "", NULL, false);

    comm(2, "Distributed.recv.0.forward", "src", "1", true);
    compute(2, "Functional.linear.0.forward", false);
    comm(2, "Distributed.send.0.forward", "dst", "1", false);
    comm(2, "Distributed.all_reduce.0.forward", "", NULL, false);
    assert_string_equal(analyse(), "2:Functional.linear.0.forward");
    end();
}

static void
rank_zero_is_a_rank_like_any_other(void **state)
{
    (void)state;
    begin(2);
    comm(0, "Distributed.all_reduce.0.forward", "", NULL, true);
    comm(0, "Distributed.recv.0.forward", "src", "1", true);
    compute(0, "Functional.relu.0.forward", false);
    comm(0, "Distributed.all_reduce.1.forward", "", NULL, true);
    comm(1, "Distributed.all_reduce.0.forward", "", NULL, true);
    compute(1, "Functional.relu.0.forward", false);
    comm(1, "Distributed.send.0.forward", "dst", "0", true);
    comm(1, "Distributed.all_reduce.1.forward", "", NULL, true);
    assert_string_equal(analyse(), "1:Functional.relu.0.forward");
    end();
}

static void
a_peer_given_by_position_is_understood(void **state)
{
    (void)state;
    begin(3);
    comm(0, "Distributed.all_reduce.0.forward", "", NULL, true);
    comm(0, "Distributed.all_reduce.1.forward", "", NULL, true);
    comm(0, "Distributed.isend.0.forward", "1", "2", true);
    comm(1, "Distributed.all_reduce.0.forward", "", NULL, true);
    compute(1, "Functional.gelu.0.forward", false);
    comm(1, "Distributed.all_reduce.1.forward", "", NULL, true);
    comm(2, "Distributed.all_reduce.0.forward", "", NULL, true);
    comm(2, "Distributed.all_reduce.1.forward", "", NULL, true);
    compute(2, "Functional.relu.0.forward", false);
    comm(2, "Distributed.irecv.0.forward", "1", "0", true);
    assert_string_equal(analyse(), "1:Functional.gelu.0.forward");
    end();
}

/* The root has sent before the others receive; a second broadcast from another root comes later. */
static void
broadcasts_link_every_receiver_with_their_root(void **state)
{
    (void)state;
    begin(3);
    for (size_t i = 0; i < 3; i++) {
        comm(i, "Distributed.broadcast.0.forward", "src", "2", true);
        compute(i, "Functional.linear.0.forward", i != 1);
        comm(i, "Distributed.broadcast.1.forward", "src", "0", true);
        compute(i, "Functional.relu.0.forward", i != 0);
        comm(i, "Distributed.broadcast.2.forward", "src", "1", true);
    }
    assert_string_equal(analyse(), "1:Functional.linear.0.forward");
    end();
}

/* Two groups of two run side by side; the group that is one step behind does not hide the other's difference. */
static void
groups_run_side_by_side(void **state)
{
    (void)state;
    begin(4);
    for (size_t i = 0; i < 4; i++) {
        const char *group = i < 2 ? "[0, 1]" : "tp2-2-3";

        comm(i, "Distributed.all_reduce.0.forward", "group", group, true);
        compute(i, "Functional.linear.0.forward", true);
        compute(i, "Functional.relu.0.forward", i != 3);
        comm(i, "Distributed.all_reduce.1.forward", "group", group, i < 2);
        compute(i, "Functional.gelu.0.forward", i != 0);
        comm(i, "Distributed.all_reduce.2.forward", "group", "[0, 1, 2, 3]", false);
    }
    assert_string_equal(analyse(), "3:Functional.relu.0.forward");
    end();
}

static void
ranks_inside_a_group_are_translated(void **state)
{
    (void)state;
    begin(4);
    for (size_t i = 0; i < 4; i++)
        comm(i, "Distributed.all_reduce.0.forward", "", NULL, true);
    row(1, "Distributed.send.0.forward", "input.group", "input", "N/A", "[1, 3]");
    row(1, "Distributed.send.0.forward", "input.group_dst", "input", "N/A", "1");
    comm(1, "Distributed.all_reduce.1.forward", "", NULL, true);
    comm(0, "Distributed.all_reduce.1.forward", "", NULL, true);
    compute(2, "Functional.gelu.0.forward", false);
    comm(2, "Distributed.all_reduce.1.forward", "", NULL, true);
    row(3, "Distributed.recv.0.forward", "input.group", "input", "N/A", "[1, 3]");
    row(3, "Distributed.recv.0.forward", "input.group_src", "input", "N/A", "0");
    compute(3, "Functional.gelu.0.forward", false);
    comm(3, "Distributed.all_reduce.1.forward", "", NULL, true);
    /* both stand before the second all_reduce, which comes after the message */
    assert_string_equal(analyse(), "2:Functional.gelu.0.forward 3:Functional.gelu.0.forward");
    end();
}

static void
p2p(size_t rank, const char *api, const char *op, const char *peer)
{
    char name[128];
    msp_cell cells[sizeof(columns) / sizeof(columns[0])];
    msp_da_row r = {.api = msp_str_of(api), .state = MSP_STR("input"), .cells = cells};

    snprintf(name, sizeof(name), "%s.input.0.%s%s", api, op, peer);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        cells[i] = text("N/A");
    cells[0] = text(name);
    r.p2p_op[0] = msp_str_of(op);
    r.p2p_peer[0] = msp_str_of(peer);
    assert_int_equal(msp_da_rank_row(ranks[rank], &r, NULL), MSP_OK);
}

/* A batch of messages links every two ranks that exchange one, whatever else is in each other's batch. */
static void
batches_of_messages_link_their_peers(void **state)
{
    static const char batch[] = "Distributed.batch_isend_irecv.0.forward";

    (void)state;
    begin(3);
    for (size_t i = 0; i < 3; i++)
        comm(i, "Distributed.all_reduce.0.forward", "", NULL, true);
    comm(0, "Distributed.all_reduce.1.forward", "group", "[0, 9]", true);
    p2p(0, batch, "isend", "1");
    p2p(0, batch, "irecv", "1");
    p2p(1, batch, "isend", "0");
    p2p(1, batch, "isend", "2");
    compute(2, "Functional.gelu.0.forward", false);
    p2p(2, batch, "irecv", "1");
    comm(2, "Distributed.all_gather.0.forward", "", NULL, false);
    compute(1, "Functional.gelu.0.forward", false);
    comm(1, "Distributed.all_gather.0.forward", "", NULL, false);
    comm(0, "Distributed.all_gather.0.forward", "", NULL, false);
    /* rank 2's stands before the batch, rank 1's after it */
    assert_string_equal(analyse(), "2:Functional.gelu.0.forward");
    end();
}

/* Groups that share a rank are told apart although their calls have the same name. */
static void
interleaved_groups_do_not_link_with_each_other(void **state)
{
    (void)state;
    begin(4);
    for (size_t i = 0; i < 4; i++) {
        const char *row_group = i < 2 ? "[0, 1]" : "[2, 3]", *column = i % 2 == 0 ? "[0, 2]" : "[1, 3]";

        comm(i, "Distributed.all_reduce.0.forward", "group", i == 3 ? column : row_group, true);
        comm(i, "Distributed.all_reduce.1.forward", "group", i == 3 ? row_group : column, true);
        compute(i, "Functional.gelu.0.forward", i != 0);
        comm(i, "Distributed.all_reduce.2.forward", "", NULL, true);
    }
    assert_string_equal(analyse(), "0:Functional.gelu.0.forward");
    end();
}

/* Each side waits for the other's later call: there is no order, and no endless loop either. */
static void
crossed_messages_end_the_search_all_the_same(void **state)
{
    (void)state;
    begin(2);
    comm(0, "Distributed.all_reduce.0.forward", "", NULL, true);
    compute(0, "Functional.relu.0.forward", false);
    comm(0, "Distributed.all_gather.0.forward", "", NULL, true);
    comm(1, "Distributed.all_gather.0.forward", "", NULL, true);
    compute(1, "Functional.relu.0.forward", true);
    comm(1, "Distributed.all_reduce.0.forward", "", NULL, true);
    assert_string_equal(analyse(), "0:Functional.relu.0.forward");
    end();
}

/* Three pipelines side by side: what one rank says to the next is nothing to the others. A square would take minutes.
 */
static void
thousands_of_messages_find_their_partners(void **state)
{
    char api[64];

    (void)state;
    begin(4);
    for (size_t i = 0; i < 4; i++) {
        for (int k = 0; k < 5000; k++) {
            const char *peer = i == 0 ? "1" : i == 1 ? "0" : i == 2 ? "3" : "2";

            snprintf(api, sizeof(api), "Distributed.%s.%d.forward", i % 2 == 0 ? "send" : "recv", k);
            comm(i, api, i % 2 == 0 ? "dst" : "src", peer, true);
        }
        comm(i, "Distributed.all_reduce.0.forward", "", NULL, true);
        compute(i, "Functional.gelu.0.forward", i != 2);
        comm(i, "Distributed.all_reduce.1.forward", "", NULL, true);
    }
    assert_string_equal(analyse(), "2:Functional.gelu.0.forward");
    end();
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

static void
seeds_of_the_fused_attention_do_not_count(void **state)
{
    static const char api[] = "NPU.npu_fusion_attention.0.forward";

    (void)state;
    begin(1);
    for (int i = 0; i < 6; i++) {
        char suffix[32];

        snprintf(suffix, sizeof(suffix), "output.%d", i);
        row(0, api, suffix, "output", i >= 4 ? "900.0%" : "0.0%", NULL);
    }
    assert_string_equal(analyse(), "");
    end();
}

static void
only_percentages_above_half_count(void **state)
{
    static const char *const fine[] = {"50.0%", "nan%", "N/A", "Nan", "", "0.0%", "9e99"};

    (void)state;
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        begin(1);
        row(0, "Functional.relu.0.forward", "output.0", "output", fine[i], NULL);
        assert_string_equal(analyse(), "");
        end();
    }
    begin(1);
    row(0, "Functional.relu.0.forward", "output.0", "output", "inf%", NULL);
    assert_string_equal(analyse(), "0:Functional.relu.0.forward");
    end();
}

static void
names_that_are_no_calls_are_left_out(void **state)
{
    (void)state;
    begin(1);
    row(0, "value.0.debug", "x", "debug", "100.0%", NULL);
    row(0, "Module.fc.Linear.parameters_grad", "weight", "parameters_grad", "100.0%", NULL);
    assert_string_equal(analyse(), "");
    end();
}

/* ---- files --------------------------------------------------------------------------------------------------- */

static void
the_rank_file_is_valid_json_with_rows_in_their_order(void **state)
{
    msp_mapping map;
    msp_json_doc doc;
    const msp_json *call;

    (void)state;
    begin(1);
    compute(0, "Functional.linear.0.forward", true);
    compute(0, "Functional.relu.0.forward", false);
    analyse();
    assert_int_equal(msp_map_open(&map, scratch_path("rank0.json"), NULL), MSP_OK);
    assert_int_equal(msp_json_parse(&doc, map.addr, map.size, NULL), MSP_OK);
    assert_int_equal(msp_json_count(doc.root), 2);
    call = msp_json_at(doc.root, 1);
    assert_int_equal(msp_json_kind_of(msp_json_get(call, "is_same")), MSP_JSON_FALSE);
    call = msp_json_get(call, "op_items");
    assert_int_equal(msp_json_count(call), 2);
    assert_int_equal(msp_json_count(msp_json_at(call, 0)), sizeof(columns) / sizeof(columns[0]) + 6);
    assert_true(msp_str_eq(msp_json_key(msp_json_at(call, 0), 0), MSP_STR("NPU Name")));
    assert_int_equal(msp_json_kind_of(msp_json_get(msp_json_at(call, 0), "NPU_Stack_Info")), MSP_JSON_ARRAY);
    assert_true(msp_str_eq(msp_json_string(msp_json_get(msp_json_at(call, 1), "NPU P2POp peer")), MSP_STR("None")));
    msp_json_doc_release(&doc);
    msp_map_close(&map);
    end();
}

static void
md5_rows_differ_by_their_result(void **state)
{
    msp_da_rank *r;
    msp_cell cells[3] = {text("Functional.relu.0.forward.output.0"), text("00ff00ff"), text("Different")};
    msp_da_row one = {.api = MSP_STR("Functional.relu.0.forward"), .state = MSP_STR("output"), .cells = cells};

    (void)state;
    memset(&result, 0, sizeof(result));
    assert_int_equal(msp_da_rank_open(&r, scratch_path("md5.json"), MSP_MODE_MD5, MSP_DUMP_NO_NUMBER, md5_columns, 3,
                                      NULL),
                     MSP_OK);
    assert_int_equal(msp_da_rank_row(r, &one, NULL), MSP_OK);
    ranks[0] = r;
    nranks = 1;
    assert_string_equal(analyse(), "-1:Functional.relu.0.forward");
    end();
}

static void
an_unfinished_rank_leaves_no_file(void **state)
{
    (void)state;
    begin(1);
    compute(0, "Functional.relu.0.forward", true);
    unlink(scratch_path("rank0.json"));
    end();
    assert_int_not_equal(access(scratch_path("rank0.json"), F_OK), 0);
}

static msp_status
whole_run(void)
{
    msp_status st = MSP_OK;

    memset(&result, 0, sizeof(result));
    nranks = 2;
    memset(ranks, 0, sizeof(ranks));
    for (size_t i = 0; st == MSP_OK && i < 2; i++) {
        static const char *const apis[] = {"Distributed.all_reduce.0.forward", "Functional.relu.0.forward",
                                           "Distributed.all_reduce.1.forward"};

        st = msp_da_rank_open(&ranks[i], scratch_path(i == 0 ? "oom0.json" : "oom1.json"), MSP_MODE_STATISTICS,
                              (int64_t)i, columns, sizeof(columns) / sizeof(columns[0]), NULL);
        for (size_t k = 0; st == MSP_OK && k < 3; k++) {
            msp_cell cells[sizeof(columns) / sizeof(columns[0])];
            msp_da_row one = {.api = msp_str_of(apis[k]), .state = MSP_STR("input"), .cells = cells};

            for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++)
                cells[c] = text("[0, 1]");
            cells[0] = text("Distributed.all_reduce.0.forward.input.group");
            st = msp_da_rank_row(ranks[i], &one, NULL);
            one.state = MSP_STR("output");
            cells[1] = text("77.7%");
            if (st == MSP_OK)
                st = msp_da_rank_row(ranks[i], &one, NULL);
        }
        if (st == MSP_OK)
            st = msp_da_rank_finish(ranks[i], NULL);
    }
    if (st == MSP_OK)
        st = msp_da_run(&result, ranks, 2, scratch_dir(), NULL);
    end();
    return st;
}

static void
every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    int64_t live = msp_alloc_live();
    msp_status st = MSP_E_NOMEM;
    int64_t n;

    (void)state;
    for (n = 0; n < 500 && st == MSP_E_NOMEM; n++) {
        msp_alloc_fail_after(n);
        st = whole_run();
        msp_alloc_fail_after(-1);
        assert_int_equal(msp_alloc_live(), live);
    }
    assert_int_equal(st, MSP_OK);
    assert_true(n > 10);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_single_rank_without_communication_names_its_first_differing_call),
        TEST(before_communication_every_rank_reports_its_own),
        TEST(nothing_that_differs_writes_no_report),
        TEST(between_communications_the_first_compute_call_wins_over_the_communication_it_feeds),
        TEST(ties_in_one_layer_are_all_reported),
        TEST(after_the_last_communication_each_rank_reports_its_own),
        TEST(a_pipeline_is_ordered_by_its_messages_not_by_each_ranks_own_count),
        TEST(rank_zero_is_a_rank_like_any_other),
        TEST(a_peer_given_by_position_is_understood),
        TEST(broadcasts_link_every_receiver_with_their_root),
        TEST(groups_run_side_by_side),
        TEST(ranks_inside_a_group_are_translated),
        TEST(batches_of_messages_link_their_peers),
        TEST(interleaved_groups_do_not_link_with_each_other),
        TEST(thousands_of_messages_find_their_partners),
        TEST(crossed_messages_end_the_search_all_the_same),
        TEST(seeds_of_the_fused_attention_do_not_count),
        TEST(only_percentages_above_half_count),
        TEST(names_that_are_no_calls_are_left_out),
        TEST(the_rank_file_is_valid_json_with_rows_in_their_order),
        TEST(md5_rows_differ_by_their_result),
        TEST(an_unfinished_rank_leaves_no_file),
        TEST(every_failed_allocation_is_reported_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
