/* test_job.c - whose wrong call came first: by the ways that communication can take. */
#include "unit.h"
#include "compare/job/job.h"
#include "core/alloc.h"

enum { MAX_RANKS = 64 };

static msp_compare_result result;
static msp_job_part *parts[MAX_RANKS];

static char *
copy(const char *s)
{
    return msp_result_text(msp_str_of(s));
}

static void
begin(size_t n)
{
    result = (msp_compare_result){.pairs = msp_alloc_zero(n, sizeof(*result.pairs)), .npairs = n};
    for (size_t i = 0; i < n; i++) {
        char label[32];

        snprintf(label, sizeof(label), "rank%zu", i);
        result.pairs[i] = (msp_compare_pair){.kind = MSP_DUMP_API, .rank = (int64_t)i, .bench_rank = (int64_t)i};
        result.pairs[i].step = result.pairs[i].bench_step = MSP_DUMP_NO_NUMBER;
        result.pairs[i].label = copy(label);
        result.pairs[i].group = copy("");
        result.pairs[i].npu_path = copy("n");
        result.pairs[i].bench_path = copy("b");
        parts[i] = msp_alloc_zero(1, sizeof(*parts[i]));
        parts[i]->rank = (int64_t)i;
    }
}

static void
end(void)
{
    for (size_t i = 0; i < result.npairs; i++)
        msp_job_part_close(parts[i]);
    msp_compare_result_release(&result);
}

/* A communication call of a rank with an argument ("group", "src", "dst"); value may be "[0, 1]". */
static void
comm(size_t rank, const char *name, const char *argument, const char *value)
{
    msp_job_part *p = parts[rank];
    msp_comm_peers peers = {0};
    char row[128];
    msp_comm_arg arg = {.call = msp_str_of(name), .text = msp_str_of(value)};

    snprintf(row, sizeof(row), "%s.input.%s", name, argument);
    arg.name = msp_str_of(row);
    assert_int_equal(msp_comm_note(&peers, &arg, NULL), MSP_OK);
    p->calls = msp_realloc(p->calls, p->ncalls + 1, sizeof(*p->calls));
    p->calls[p->ncalls].name = msp_arena_text(&p->arena, name, strlen(name));
    assert_int_equal(msp_comm_finish(&p->calls[p->ncalls].comm, &peers, msp_str_of(p->calls[p->ncalls].name), p->rank,
                                     &p->arena, NULL),
                     MSP_OK);
    p->ncalls++;
    msp_comm_peers_release(&peers);
}

/* The rank goes wrong after so many communication calls, at this place behind the last of them. */
static void
wrong(size_t rank, size_t before, size_t place)
{
    parts[rank]->wrong = (msp_job_spot){.found = true, .before = before, .place = place};
    result.pairs[rank].place.wrong = copy("Functional.relu.0.forward");
    result.pairs[rank].place.why = copy("why");
}

static void
wrong_result(size_t rank, size_t call)
{
    wrong(rank, call, 0);
    parts[rank]->wrong.is_result = true;
}

/* "2:first:1 0:inherited:2 ..." in the order of the ranks. */
static const char *
judged(void)
{
    static char text[2048];
    size_t len = 0;

    assert_int_equal(msp_job_judge(&result, parts, NULL), MSP_OK);
    for (size_t i = 0; i < result.npairs; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s:%lld", i > 0 ? " " : "",
                                msp_job_role_text(result.pairs[i].place.role), (long long)result.pairs[i].place.order);
    return text;
}

static void
what_a_collective_brings_is_inherited(void **state)
{
    (void)state;
    begin(3);
    for (size_t r = 0; r < 3; r++)
        comm(r, "Distributed.all_reduce.0.forward", "group", "[0, 1, 2]");
    wrong_result(0, 0);
    wrong(1, 0, 3);
    wrong(2, 1, 0);
    assert_string_equal(judged(), "inherited:2 first:1 inherited:3");
    assert_int_equal(result.job.inherited, 2);
    end();
}

static void
a_collective_that_is_wrong_by_itself_is_first_on_all_its_ranks(void **state)
{
    (void)state;
    begin(2);
    for (size_t r = 0; r < 2; r++) {
        comm(r, "Distributed.all_reduce.0.forward", "group", "[0, 1]");
        wrong_result(r, 0);
    }
    assert_string_equal(judged(), "first:1 own:1");
    assert_int_equal(result.job.alike, 1);
    end();
}

static void
a_broadcast_brings_nothing_to_its_source(void **state)
{
    (void)state;
    begin(3);
    for (size_t r = 0; r < 3; r++)
        comm(r, "Distributed.broadcast.0.forward", "src", "0");
    wrong(0, 1, 0);
    wrong(1, 0, 0);
    wrong(2, 1, 0);
    assert_string_equal(judged(), "own:2 first:1 own:2");
    assert_int_equal(result.job.own + result.job.alike, 2);
    end();
}

static void
a_reduce_brings_what_is_wrong_to_its_root_alone(void **state)
{
    (void)state;
    begin(3);
    for (size_t r = 0; r < 3; r++)
        comm(r, "Distributed.reduce.0.forward", "dst", "1");
    wrong(0, 0, 0);
    wrong(1, 1, 0);
    wrong(2, 1, 0);
    assert_string_equal(judged(), "first:1 inherited:2 own:2");
    end();
}

static void
groups_that_do_not_meet_stay_apart(void **state)
{
    (void)state;
    begin(4);
    for (size_t r = 0; r < 4; r++)
        comm(r, "Distributed.all_reduce.0.forward", "group", r < 2 ? "[0, 1]" : "[2, 3]");
    wrong(0, 0, 5);
    wrong(1, 1, 0);
    wrong(3, 1, 0);
    assert_string_equal(judged(), "first:1 inherited:2 clean:0 own:2");
    end();
}

static void
who_waited_for_less_ran_earlier(void **state)
{
    (void)state;
    begin(3);
    comm(0, "Distributed.send.0.forward", "dst", "1");
    comm(1, "Distributed.recv.0.forward", "src", "0");
    comm(1, "Distributed.send.0.forward", "dst", "2");
    comm(2, "Distributed.recv.0.forward", "src", "1");
    wrong(2, 1, 0);
    wrong(0, 1, 9);
    assert_string_equal(judged(), "first:1 clean:0 own:2");
    end();
}

static void
calls_that_wait_for_each_other_have_an_order_all_the_same(void **state)
{
    (void)state;
    begin(2);
    comm(0, "Distributed.all_reduce.0.forward", "group", "[0, 1]");
    comm(0, "Distributed.all_gather.0.forward", "group", "[0, 1]");
    comm(1, "Distributed.all_gather.0.forward", "group", "[0, 1]");
    comm(1, "Distributed.all_reduce.0.forward", "group", "[0, 1]");
    wrong(0, 0, 0);
    wrong(1, 2, 0);
    assert_string_equal(judged(), "first:1 inherited:2");
    end();
}

static void
ranks_that_a_group_names_and_nobody_has_are_said(void **state)
{
    (void)state;
    begin(2);
    for (size_t r = 0; r < 2; r++)
        comm(r, "Distributed.all_reduce.0.forward", "group", "[0, 1, 2, 5]");
    assert_string_equal(judged(), "clean:0 clean:0");
    assert_int_equal(result.job.nnotes, 1);
    assert_string_equal(result.job.notes[0],
                        "rank2, rank5: missing on both sides: Distributed.all_reduce.0.forward of rank0 speaks to it");
    assert_int_equal(result.job.first, -1);
    end();
}

static void
calls_of_one_group_share_the_list_of_its_ranks(void **state)
{
    msp_comm_peers peers = {0};
    msp_arena arena = {0};
    msp_comm_call a, b;
    msp_comm_arg arg = {.call = MSP_STR("Distributed.all_reduce.0.forward"),
                        .name = MSP_STR("Distributed.all_reduce.0.forward.input.group"),
                        .text = MSP_STR("[3, 1, 2]")};

    (void)state;
    assert_int_equal(msp_comm_note(&peers, &arg, NULL), MSP_OK);
    assert_int_equal(msp_comm_finish(&a, &peers, arg.call, 1, &arena, NULL), MSP_OK);
    assert_int_equal(msp_comm_finish(&b, &peers, arg.call, 1, &arena, NULL), MSP_OK);
    assert_ptr_equal(a.peers, b.peers);
    assert_int_equal(a.npeers, 3);
    assert_int_equal(a.peers[0], 1);
    msp_comm_peers_release(&peers);
    msp_arena_release(&arena);
}

static void
no_memory_is_said_wherever_it_happens(void **state)
{
    msp_status st = MSP_E_NOMEM;
    int tries = 0;

    (void)state;
    while (st != MSP_OK && tries < 200) {
        begin(2);
        for (size_t r = 0; r < 2; r++)
            comm(r, "Distributed.all_reduce.0.forward", "group", "[0, 1, 2]");
        wrong(0, 0, 0);
        wrong(1, 1, 0);
        msp_alloc_fail_after(tries++);
        st = msp_job_judge(&result, parts, NULL);
        msp_alloc_fail_after(-1);
        assert_true(st == MSP_OK || st == MSP_E_NOMEM);
        end();
    }
    assert_int_equal(st, MSP_OK);
    assert_true(tries > 5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_collective_brings_is_inherited),
        TEST(a_collective_that_is_wrong_by_itself_is_first_on_all_its_ranks),
        TEST(a_broadcast_brings_nothing_to_its_source),
        TEST(a_reduce_brings_what_is_wrong_to_its_root_alone),
        TEST(groups_that_do_not_meet_stay_apart),
        TEST(who_waited_for_less_ran_earlier),
        TEST(calls_that_wait_for_each_other_have_an_order_all_the_same),
        TEST(ranks_that_a_group_names_and_nobody_has_are_said),
        TEST(calls_of_one_group_share_the_list_of_its_ranks),
        TEST(no_memory_is_said_wherever_it_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
