/* test_audit.c - what is found in the records of a step's ranks: whose call is missing, and what statistics refute. */
#include "unit.h"
#include <math.h>
#include "audit_step.h"

static char text[65536];
static size_t length;
static msp_audit_result found;

static void
add(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    length += (size_t)vsnprintf(text + length, sizeof(text) - length, format, args);
    va_end(args);
    assert_true(length < sizeof(text));
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static void
begin_rank(int rank)
{
    add("%s\"%d\": {", length > 1 ? "}, " : "", rank);
}

static void
begin(void)
{
    length = 0;
    add("{");
    begin_rank(0);
}

/* A tensor of n times the same number. */
static const char *
tensor(int n, double value)
{
    static char texts[8][256];
    static unsigned next;
    char *p = texts[next++ % 8];

    snprintf(p, sizeof(texts[0]),
             "{\"dtype\": \"torch.float32\", \"shape\": [%d], \"Max\": %g, \"Min\": %g, \"Mean\": %g, \"Norm\": %.9g}",
             n, value, value, value, sqrt(n) * fabs(value));
    return p;
}

/* api is "all_reduce.0"; output NULL: the call never returned; order below 0: the record does not say it. */
static void
call(const char *api, const char *inputs, const char *output, int order)
{
    add("%s\"Distributed.%s.forward\": {\"input_args\": [%s], \"input_kwargs\": {}",
        text[length - 1] == '{' ? "" : ", ", api, inputs);
    if (output != NULL)
        add(", \"output\": [%s]", output);
    if (order >= 0)
        add(", \"distributed\": {\"group_ranks\": [0, 1, 2], \"group_id\": \"0\", \"order\": %d}", order);
    add("}");
}

static void
judge(void)
{
    msp_error err;

    add("}}");
    assert_int_equal(judge_text(&found, text, length, &err), MSP_OK);
}

static void
assert_found(size_t i, msp_audit_kind kind, int64_t rank, const char *what)
{
    assert_true(i < found.nfindings);
    assert_int_equal(found.findings[i].kind, kind);
    assert_int_equal(found.findings[i].rank, rank);
    assert_non_null(strstr(found.findings[i].what, what));
}

static void
end(void)
{
    msp_audit_result_release(&found);
}

/* ---- who makes which call ---------------------------------------------------------------------------------------- */

static void
a_rank_that_waits_is_not_told_beside_the_one_that_went_elsewhere(void **state)
{
    (void)state;
    begin();
    for (int r = 0; r < 3; r++) {
        if (r > 0)
            begin_rank(r);
        call("all_reduce.0", tensor(4, 1), tensor(4, 3), 0);
        if (r != 2)
            call("broadcast.0", tensor(2, 1), r == 0 ? NULL : tensor(2, 1), 1);
        if (r != 0)
            call("all_reduce.1", tensor(4, 1), NULL, r == 2 ? 1 : 2);
    }
    judge();
    assert_int_equal(found.nfindings, 1);
    assert_found(0, MSP_AUDIT_CALLS, 2, "rank 2 does not make broadcast");
    end();
}

static void
ranks_that_all_wait_are_told_all_the_same(void **state)
{
    (void)state;
    begin();
    call("all_reduce.0", tensor(4, 1), NULL, 0);
    begin_rank(1);
    call("all_reduce.0", tensor(4, 1), NULL, 0);
    begin_rank(2);
    call("send.0", "{\"dtype\": \"torch.float32\", \"shape\": [1]}, 9", NULL, -1);
    judge();
    assert_int_equal(found.nfindings, 1);
    assert_found(0, MSP_AUDIT_CALLS, 2, "rank 2 does not make all_reduce SUM float32 [4]");
    end();
}

static void
the_recorded_order_counts_not_the_place_in_the_file(void **state)
{
    (void)state;
    begin();
    call("all_reduce.1", tensor(2, 1), tensor(2, 3), 1);
    call("all_reduce.0", tensor(4, 1), tensor(4, 3), 0);
    for (int r = 1; r < 3; r++) {
        begin_rank(r);
        call("all_reduce.0", tensor(4, 1), tensor(4, 3), 0);
        call("all_reduce.1", tensor(2, 1), tensor(2, 3), 1);
    }
    judge();
    assert_int_equal(found.nfindings, 0);
    assert_int_equal(found.by_statistics, 2);
    end();
}

static void
a_receive_from_any_rank_takes_what_it_received(void **state)
{
    (void)state;
    begin();
    call("recv.0", tensor(1, 0), tensor(1, 7), -1);
    call("recv.1", tensor(1, 0), tensor(1, 5), -1);
    add(", \"Distributed.recv.2.forward\": {\"input_args\": [%s, 1], \"input_kwargs\": {}, \"output\": [%s]}",
        tensor(1, 0), tensor(1, 6));
    for (int r = 1; r < 3; r++) {
        begin_rank(r);
        add("\"Distributed.send.0.forward\": {\"input_args\": [%s, 0], \"input_kwargs\": {}, \"output\": []}",
            tensor(1, r == 1 ? 5 : 7));
        if (r == 1)
            add(", \"Distributed.send.1.forward\": {\"input_args\": [%s, 0], \"input_kwargs\": {}, \"output\": []}",
                tensor(1, 6));
    }
    judge();
    assert_int_equal(found.nfindings, 0);
    assert_int_equal(found.matched, 3);
    end();
}

static void
where_two_ranks_could_have_sent_it_nothing_is_said_of_the_rest(void **state)
{
    (void)state;
    begin();
    call("recv.0", tensor(1, 0), tensor(1, 9), -1);
    for (int r = 1; r < 3; r++) {
        begin_rank(r);
        add("\"Distributed.send.0.forward\": {\"input_args\": [%s, 0], \"input_kwargs\": {}, \"output\": []}",
            tensor(1, r));
    }
    judge();
    assert_int_equal(found.nfindings, 0);
    assert_int_equal(found.matched, 0);
    end();
}

static void
a_receive_that_nobody_serves_is_told(void **state)
{
    (void)state;
    begin();
    call("recv.0", tensor(1, 0), NULL, -1);
    begin_rank(1);
    judge();
    assert_int_equal(found.nfindings, 1);
    assert_found(0, MSP_AUDIT_CALLS, 0, "rank 0 waits for any rank (recv float32 [1]), and no rank sends it");
    end();
}

/* ---- what statistics say ----------------------------------------------------------------------------------------- */

/* Three ranks give 1, 2 and 3, and all get the same. */
static void
reduce(const char *more, double result)
{
    begin();
    for (int r = 0; r < 3; r++) {
        char inputs[512];

        if (r > 0)
            begin_rank(r);
        snprintf(inputs, sizeof(inputs), "%s%s", tensor(4, r + 1), more);
        call("all_reduce.0", inputs, tensor(4, result), 0);
    }
    judge();
}

#define OP(name) ", {\"value\": \"RedOpType." name "\"}"

static void
reductions_are_what_the_inputs_make(void **state)
{
    static const struct {
        const char *op;
        double right, wrong;
    } cases[] = {{"", 6, 6.01},
                 {OP("SUM"), 6, 5.9},
                 {OP("AVG"), 2, 2.1},
                 {OP("MAX"), 3, 2},
                 {OP("MIN"), 1, 2},
                 {", {\"value\": \"RedOpType.PREMUL_SUM\", \"factor\": 0.5}", 3, 6},
                 {", {\"value\": \"RedOpType.PREMUL_SUM\", \"factor\": -2}", -12, 12}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        reduce(cases[i].op, cases[i].right);
        assert_int_equal(found.nfindings, 0);
        assert_int_equal(found.by_statistics, 1);
        end();
        reduce(cases[i].op, cases[i].wrong);
        assert_int_equal(found.nfindings, 1);
        assert_found(0, MSP_AUDIT_VALUES, 0, "the inputs make");
        end();
    }
}

static void
a_factor_that_one_rank_did_not_record_proves_nothing(void **state)
{
    (void)state;
    begin();
    for (int r = 0; r < 3; r++) {
        char inputs[512];

        if (r > 0)
            begin_rank(r);
        snprintf(inputs, sizeof(inputs), "%s, {\"value\": \"RedOpType.PREMUL_SUM\"%s}", tensor(4, 1),
                 r == 1 ? "" : ", \"factor\": 2.0");
        call("all_reduce.0", inputs, tensor(4, 17), 0);
    }
    judge();
    assert_int_equal(found.nfindings, 0);
    end();
}

static void
a_sum_that_may_have_left_its_type_proves_nothing(void **state)
{
    (void)state;
    begin();
    for (int r = 0; r < 3; r++) {
        const char *t =
            "{\"dtype\": \"torch.int8\", \"shape\": [1], \"Max\": 100, \"Min\": 100, \"Mean\": 100, \"Norm\": 100}";
        const char *wrapped =
            "{\"dtype\": \"torch.int8\", \"shape\": [1], \"Max\": 44, \"Min\": 44, \"Mean\": 44, \"Norm\": 44}";

        if (r > 0)
            begin_rank(r);
        call("all_reduce.0", t, wrapped, 0);
    }
    judge();
    assert_int_equal(found.nfindings, 0);
    end();
}

static void
a_call_that_did_nothing_anywhere_is_told_of_the_whole_group(void **state)
{
    (void)state;
    begin();
    for (int r = 0; r < 3; r++) {
        if (r > 0)
            begin_rank(r);
        call("all_reduce.0", tensor(4, 2), tensor(4, 2), 0);
        call("all_reduce.1", tensor(4, 0), tensor(4, 0), 1); /* zeros make zeros */
    }
    judge();
    assert_int_equal(found.nfindings, 1);
    assert_found(0, MSP_AUDIT_VALUES, 0, "on all 3 ranks of its group: the call did nothing");
    end();
}

static void
copies_of_a_dtensor_are_equal_where_it_is_replicated(void **state)
{
    static const char *const placements[] = {"[{\"Replicate\": {}}]", "[{\"Shard\": {\"dim\": 0}}]"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        begin();
        for (int r = 0; r < 3; r++) {
            if (r > 0)
                begin_rank(r);
            add("\"Functional.relu.0.forward\": {\"input_args\": [{\"dtype\": \"torch.float32\", \"shape\": [1], "
                "\"Max\": %d, \"Min\": 0, \"device_mesh\": [0, 1, 2], \"placements\": %s}]}",
                r == 1 ? 2 : 1, placements[i]);
        }
        judge();
        assert_int_equal(found.nfindings, i == 0 ? 1 : 0);
        assert_int_equal(found.replicated, i == 0 ? 3 : 0);
        if (i == 0)
            assert_found(0, MSP_AUDIT_REPLICAS, 1, "input.0 on ranks [0, 1, 2] of Functional.relu.0.forward");
        end();
    }
}

/* A parameter as an optimizer got it; group NULL: nobody says who holds it too. */
static void
parameter(const char *name, const char *group, bool applied, double value, double gradient)
{
    add("%s\"%s\": {\"applied\": %s, ", text[length - 1] == '{' ? "" : ", ", name, applied ? "true" : "false");
    if (group != NULL)
        add("\"group\": \"%s\", ", group);
    add("\"parameter\": %s, \"grad\": %s}", tensor(4, value), tensor(4, gradient));
}

static void
who_holds_a_parameter_too_is_what_the_ranks_say(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 3; wrong++) {
        begin();
        for (int r = 0; r < 4; r++) { /* two groups of two, and the whole is shared by nobody */
            if (r > 0)
                begin_rank(r);
            add("\"Module.fc.Linear.forward.0\": {\"parameters\": {\"weight\": %s}}", tensor(4, 1 + r % 2));
            parameter("Module.fc.Linear.weight", r % 2 ? "odd" : "even", true, 1 + r % 2,
                      wrong == 1 && r == 3 ? 9 : 5 + r % 2);
            parameter("Module.fc.Linear.bias", r % 2 ? "odd" : "even", true, wrong == 2 && r == 2 ? 2 : 0, 1);
        }
        judge();
        assert_int_equal(found.nfindings, wrong > 0);
        if (wrong == 1)
            assert_found(0, MSP_AUDIT_REPLICAS, 3,
                         "the gradient Module.fc.Linear.weight of rank 3 differs from that of 1");
        if (wrong == 2)
            assert_found(0, MSP_AUDIT_REPLICAS, 2,
                         "Module.fc.Linear.bias of rank 2 differs from that of 1 other replica");
        if (wrong > 0)
            assert_int_equal(found.findings[0].record, -1);
        end();
    }
}

static void
gradients_that_no_optimizer_took_may_wait_for_their_reduction(void **state)
{
    (void)state;
    for (int applied = 0; applied < 2; applied++) {
        begin();
        for (int r = 0; r < 3; r++) {
            if (r > 0)
                begin_rank(r);
            parameter("Module.fc.Linear.weight", "all", applied, 1, r);
        }
        judge();
        assert_int_equal(found.nfindings, applied ? 2 : 0);
        end();
    }
}

/* A large layer that all have, and modules in parts, each rank's or each pair's own. */
static void
modules_without_a_majority_in_the_first_step_are_shards(void **state)
{
    (void)state;
    for (int parts = 2; parts <= 4; parts += 2)
        for (int wrong = 0; wrong < 2; wrong++) {
            begin();
            for (int r = 0; r < 4; r++) {
                if (r > 0)
                    begin_rank(r);
                add("\"Module.big.Linear.forward.0\": {\"parameters\": {\"weight\": %s}}", tensor(100, 1));
                add(", \"Module.part.Linear.forward.0\": {\"parameters\": {\"weight\": {\"dtype\": \"torch.float32\", "
                    "\"shape\": [4], \"Max\": %d, \"Min\": 0}, \"bias\": %s}}",
                    1 + r % parts, tensor(1, r));
                add(", \"Module.norm.LayerNorm.forward.0\": {\"parameters\": {\"weight\": %s}}",
                    tensor(4, wrong && r == 2 ? 2 : 1));
            }
            judge();
            assert_int_equal(found.nfindings, wrong);
            if (wrong)
                assert_found(0, MSP_AUDIT_REPLICAS, 2, "Module.norm.LayerNorm.forward.0.weight of rank 2");
            end();
        }
}

static void
no_memory_is_an_error_wherever_it_ends(void **state)
{
    msp_status st = MSP_E_NOMEM;
    msp_error err;

    (void)state;
    begin();
    for (int r = 0; r < 3; r++) {
        if (r > 0)
            begin_rank(r);
        call("all_reduce.0", tensor(4, 1), tensor(4, 5), 0);
        call("recv.0", tensor(1, 0), NULL, -1);
        add(", \"Module.l.Linear.forward.0\": {\"parameters\": {\"weight\": %s}}", tensor(2, r == 2 ? 1 : 2));
        add(", \"Functional.relu.0.forward\": {\"input_args\": [{\"dtype\": \"torch.float32\", \"shape\": [1], "
            "\"Max\": %d, "
            "\"Min\": 0, \"device_mesh\": [0, 1, 2], \"placements\": [{\"Replicate\": {}}]}]}",
            r);
        add(", \"Module.l.Linear.parameters_grad\": {\"weight\": [%s]}", tensor(2, 1));
        parameter("Module.l.Linear.bias", "all", true, r, r);
        parameter("Module.m.Linear.bias", NULL, true, r == 2, r);
    }
    add("}}");
    for (int64_t n = 0; n < 10000 && st == MSP_E_NOMEM; n++) {
        msp_alloc_fail_after(n);
        st = judge_text(&found, text, length, &err);
        msp_alloc_fail_after(-1);
        msp_audit_result_release(&found);
        assert_true(st == MSP_OK || st == MSP_E_NOMEM);
    }
    assert_int_equal(st, MSP_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_rank_that_waits_is_not_told_beside_the_one_that_went_elsewhere),
        TEST(ranks_that_all_wait_are_told_all_the_same),
        TEST(the_recorded_order_counts_not_the_place_in_the_file),
        TEST(a_receive_from_any_rank_takes_what_it_received),
        TEST(where_two_ranks_could_have_sent_it_nothing_is_said_of_the_rest),
        TEST(a_receive_that_nobody_serves_is_told),
        TEST(reductions_are_what_the_inputs_make),
        TEST(a_factor_that_one_rank_did_not_record_proves_nothing),
        TEST(a_sum_that_may_have_left_its_type_proves_nothing),
        TEST(a_call_that_did_nothing_anywhere_is_told_of_the_whole_group),
        TEST(copies_of_a_dtensor_are_equal_where_it_is_replicated),
        TEST(who_holds_a_parameter_too_is_what_the_ranks_say),
        TEST(gradients_that_no_optimizer_took_may_wait_for_their_reduction),
        TEST(modules_without_a_majority_in_the_first_step_are_shards),
        TEST(no_memory_is_an_error_wherever_it_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
