/* test_share.c - pairs shared out among processes, which are threads here: who does what, who dies, what comes back. */
#include "unit.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "compare/share/talk.h"
#include "core/alloc.h"

enum { MAX_PROCESSES = 4, PAIRS = 40, MAILS = 4096 };

/* ---- a link of queues in memory ---------------------------------------------------------------------------------- */

typedef struct mail {
    int from;
    char *bytes;
    size_t n;
} mail;

typedef struct box {
    pthread_mutex_t lock;
    mail mails[MAILS];
    size_t head, tail;
} box;

typedef struct process {
    msp_link link;
    box box;
    msp_run run;
    msp_plan plan;
    msp_compare_result out;
    msp_pair_parts parts[PAIRS];
    msp_compare_options opt;
    pthread_t thread;
    size_t worked; /* pairs */
    int dies_at;   /* after so many pairs it says nothing any more; -1: never */
    bool is_blind; /* it sees none of the files */
    atomic_bool is_dead;
    msp_status status;
} process;

static process processes[MAX_PROCESSES];
static int silence = 60; /* seconds: longer than any machine takes for these tests */
static int nprocesses;
static atomic_int done_by[PAIRS]; /* how often */
static atomic_int refusals;

static int
send_mail(msp_link *l, int to, const void *bytes, size_t n)
{
    process *me = l->self;
    box *b = &processes[to].box;
    int failed = -1;

    if (atomic_load(&me->is_dead))
        return 0; /* nobody hears the dead */
    pthread_mutex_lock(&b->lock);
    if (b->tail - b->head < MAILS) {
        mail *m = &b->mails[b->tail++ % MAILS];

        *m = (mail){l->rank, malloc(n + 1), n};
        memcpy(m->bytes, bytes, n);
        failed = 0;
    }
    pthread_mutex_unlock(&b->lock);
    return failed;
}

static int
recv_mail(msp_link *l, int *from, void **bytes, size_t *n, int milliseconds)
{
    process *me = l->self;
    int got = 0;

    for (int i = 0; i <= milliseconds && got == 0; i++) {
        pthread_mutex_lock(&me->box.lock);
        if (me->box.head < me->box.tail) {
            mail *m = &me->box.mails[me->box.head++ % MAILS];

            *from = m->from;
            *bytes = m->bytes;
            *n = m->n;
            got = 1;
        }
        pthread_mutex_unlock(&me->box.lock);
        if (got == 0 && i < milliseconds)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return got;
}

static void
drop_mail(msp_link *l, void *bytes)
{
    (void)l;
    free(bytes);
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

static char *
copy(const char *s)
{
    return msp_result_text(msp_str_of(s));
}

/* What a real run would make of the pair: something of every kind, that depends on the pair alone. */
static void
compare_one(process *p, size_t pair)
{
    msp_compare_pair *out = &p->out.pairs[pair];
    msp_job_part *part = msp_alloc_zero(1, sizeof(*part));
    char text[64];

    if (p->is_blind) {
        msp_free(part);
        out->error = copy("there is no such file");
        out->status = MSP_E_NOT_FOUND;
        atomic_fetch_add(&refusals, 1);
        return;
    }
    snprintf(text, sizeof(text), "call of pair %zu (%s)", pair, p->plan.pairs[pair].label);
    out->counts.rows = (int64_t)pair + 1;
    out->error = pair % 5 == 0 ? copy("cannot be read") : NULL;
    out->status = pair % 5 == 0 ? MSP_E_FORMAT : MSP_OK;
    out->suspect.found = true;
    out->suspect.api = copy(text);
    out->place.wrong = copy(text);
    assert_true(msp_result_add(&out->files, &out->nfiles, MSP_STR("a.csv")));
    part->rank = (int64_t)pair;
    part->calls = msp_alloc_zero(2, sizeof(*part->calls));
    part->ncalls = 2;
    for (int i = 0; i < 2; i++) {
        static const int64_t peers[] = {0, 1, 5};

        part->calls[i].name = "Distributed.all_reduce.7.forward";
        part->calls[i].comm = (msp_comm_call){.api = MSP_STR("all_reduce"), .direction = MSP_STR("forward")};
        part->calls[i].comm.peers = peers;
        part->calls[i].comm.npeers = 3;
        part->calls[i].comm.hash = msp_comm_hash(peers, 3);
    }
    part->wrong = (msp_job_spot){.found = true, .before = 1};
    p->parts[pair].job = part;
    atomic_fetch_add(&done_by[pair], 1);
}

static void
work(const size_t *pairs, size_t n, void *payload)
{
    process *p = payload;

    for (size_t i = 0; i < n; i++) {
        if ((int)p->worked == p->dies_at)
            atomic_store(&p->is_dead, true);
        p->worked++;
        if (atomic_load(&p->is_dead))
            continue;
        compare_one(p, pairs[i]);
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
}

static bool
goes_on(const msp_compare_progress *progress, void *payload)
{
    process *p = payload;

    (void)progress;
    return !atomic_load(&p->is_dead);
}

static void
open_process(int rank)
{
    process *p = &processes[rank];

    memset(p, 0, sizeof(*p));
    pthread_mutex_init(&p->box.lock, NULL);
    pthread_mutex_init(&p->run.lock, NULL);
    p->link = (msp_link){.version = MSP_LINK_VERSION, .rank = rank, .size = nprocesses, .self = p, .silence = silence};
    p->link.send = send_mail;
    p->link.recv = recv_mail;
    p->link.drop = drop_mail;
    p->dies_at = -1;
    p->opt = (msp_compare_options){.progress = goes_on, .progress_payload = p};
    p->run.opt = &p->opt;
    p->run.timestamp = "20260101000000";
    p->plan.pairs = msp_alloc_zero(PAIRS, sizeof(*p->plan.pairs));
    p->plan.npairs = PAIRS;
    p->out.pairs = msp_alloc_zero(PAIRS, sizeof(*p->out.pairs));
    p->out.npairs = PAIRS;
}

static void
close_process(int rank)
{
    process *p = &processes[rank];

    for (size_t i = 0; i < PAIRS; i++) {
        msp_pack_plan_release(&p->plan.pairs[i]);
        msp_job_part_close(p->parts[i].job);
    }
    msp_free(p->plan.pairs);
    msp_compare_result_release(&p->out);
    while (p->box.head < p->box.tail)
        free(p->box.mails[p->box.head++ % MAILS].bytes);
    pthread_mutex_destroy(&p->box.lock);
    pthread_mutex_destroy(&p->run.lock);
}

static msp_dump_place *
new_place(size_t i)
{
    msp_dump_place *p = msp_alloc_zero(1, sizeof(*p));

    p->path = copy("/nowhere/dump.json");
    p->group = copy("");
    p->step_name = copy("");
    p->rank_name = copy("rank");
    p->rank = (int64_t)i;
    return p;
}

static void
plan_pairs(process *p)
{
    for (size_t i = 0; i < PAIRS; i++) {
        msp_plan_pair *pair = &p->plan.pairs[i];
        char label[32];

        snprintf(label, sizeof(label), "rank%zu", i);
        *pair = (msp_plan_pair){.joined = {new_place(i), new_place(i)},
                                .nnpu = 1,
                                .nbench = 1,
                                .label = copy(label),
                                .out_dir = copy("o"),
                                .stem = copy("s"),
                                .advisor_stem = copy("a")};
        pair->npu = pair->joined[0];
        pair->bench = pair->joined[1];
        p->out.pairs[i].label = copy(label);
        done_by[i] = 0;
    }
}

static msp_share
share_of(process *p)
{
    return (msp_share){&p->link, &p->run, &p->plan, &p->out, p->parts, work, p};
}

static void *
follow(void *payload)
{
    process *p = payload;
    msp_share share = share_of(p);
    msp_share_setup setup;
    msp_error err;

    p->status = msp_share_join(&setup, &p->link, &err);
    if (p->status == MSP_OK) {
        p->status = setup.npairs == PAIRS && strcmp(setup.timestamp, "20260101000000") == 0 ? MSP_OK : MSP_E_INVALID;
        msp_free(setup.timestamp);
    }
    if (p->status == MSP_OK)
        p->status = msp_share_follow(&share, &err);
    return NULL;
}

static void
begin(int n)
{
    nprocesses = n;
    for (int i = 0; i < n; i++)
        open_process(i);
    plan_pairs(&processes[0]);
}

/* Run them all; what came out stands in process 0. */
static msp_status
run_all(void)
{
    msp_share share = share_of(&processes[0]);
    size_t order[PAIRS];
    msp_status st;

    for (size_t i = 0; i < PAIRS; i++)
        order[i] = i;
    for (int i = 1; i < nprocesses; i++)
        assert_int_equal(pthread_create(&processes[i].thread, NULL, follow, &processes[i]), 0);
    st = msp_share_lead(&share, order, PAIRS, NULL);
    msp_share_end(&processes[0].link, NULL, false, &processes[0].out.lost);
    for (int i = 1; i < nprocesses; i++)
        pthread_join(processes[i].thread, NULL);
    return st;
}

static void
end(void)
{
    silence = 60;
    for (int i = 0; i < nprocesses; i++)
        close_process(i);
}

static void
assert_compared(size_t i)
{
    const msp_compare_pair *p = &processes[0].out.pairs[i];
    const msp_job_part *part = processes[0].parts[i].job;
    char text[64];

    snprintf(text, sizeof(text), "call of pair %zu (rank%zu)", i, i);
    assert_int_equal(p->counts.rows, (int64_t)i + 1);
    assert_int_equal(p->status, i % 5 == 0 ? MSP_E_FORMAT : MSP_OK);
    assert_string_equal(p->suspect.api, text);
    assert_string_equal(p->place.wrong, text);
    assert_int_equal(p->nfiles, 1);
    assert_non_null(part);
    assert_int_equal(part->rank, (int64_t)i);
    assert_int_equal(part->ncalls, 2);
    assert_true(msp_str_eq(part->calls[1].comm.api, MSP_STR("all_reduce")));
    assert_int_equal(part->calls[1].comm.npeers, 3);
    assert_int_equal(part->calls[1].comm.peers[2], 5);
    assert_true(part->calls[0].comm.hash == part->calls[1].comm.hash && part->calls[0].comm.hash != 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void
every_pair_is_done_once_and_comes_back_whole(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_PROCESSES; n++) {
        begin(n);
        assert_int_equal(run_all(), MSP_OK);
        assert_int_equal(processes[0].out.lost, 0);
        for (size_t i = 0; i < PAIRS; i++) {
            assert_int_equal(done_by[i], 1);
            assert_compared(i);
        }
        for (int i = 1; i < n; i++)
            assert_int_equal(processes[i].status, MSP_OK);
        end();
    }
}

enum { SILENCE = 5 }; /* seconds: a process that lives must answer within them on a busy machine, too */

static void
what_a_dead_process_had_is_done_by_others(void **state)
{
    (void)state;
    silence = SILENCE;
    begin(3);
    processes[1].dies_at = 2;
    assert_int_equal(run_all(), MSP_OK);
    for (size_t i = 0; i < PAIRS; i++)
        assert_compared(i);
    end();
}

static void
what_a_process_cannot_read_is_done_by_the_first(void **state)
{
    (void)state;
    begin(3);
    refusals = 0;
    processes[1].is_blind = processes[2].is_blind = true;
    assert_int_equal(run_all(), MSP_OK);
    assert_true(refusals > 0);
    assert_int_equal(processes[0].out.lost, 0);
    for (size_t i = 0; i < PAIRS; i++) {
        assert_int_equal(done_by[i], 1);
        assert_compared(i);
    }
    end();
}

static void
all_others_may_die(void **state)
{
    (void)state;
    silence = SILENCE;
    begin(3);
    processes[1].dies_at = processes[2].dies_at = 0;
    assert_int_equal(run_all(), MSP_OK);
    for (size_t i = 0; i < PAIRS; i++)
        assert_compared(i);
    end();
}

static void
without_work_the_others_are_let_go(void **state)
{
    (void)state;
    begin(3);
    for (int i = 1; i < 3; i++)
        assert_int_equal(pthread_create(&processes[i].thread, NULL, follow, &processes[i]), 0);
    msp_compare_dismiss(&processes[0].link, &processes[0].out);
    for (int i = 1; i < 3; i++) {
        pthread_join(processes[i].thread, NULL);
        assert_int_equal(processes[i].status, MSP_E_CANCELLED);
    }
    assert_int_equal(processes[0].out.lost, 0);
    end();
}

static void
without_a_leader_the_others_end(void **state)
{
    msp_error err;

    (void)state;
    silence = SILENCE;
    begin(2);
    assert_int_equal(msp_share_follow(&(msp_share){&processes[1].link, &processes[1].run, &processes[1].plan,
                                                   &processes[1].out, processes[1].parts, work, &processes[1]},
                                      &err),
                     MSP_E_IO);
    assert_non_null(strstr(err.message, "has heard nothing of process 0"));
    end();
}

static void
another_build_is_not_worked_with(void **state)
{
    (void)state;
    begin(2);
    assert_true(msp_talk_say(&processes[1].link, 0, TALK_HELLO, &(msp_buf){.p = "other", .len = 5}));
    {
        msp_share share = share_of(&processes[0]);
        size_t order[PAIRS];

        for (size_t i = 0; i < PAIRS; i++)
            order[i] = i;
        assert_int_equal(msp_share_lead(&share, order, PAIRS, NULL), MSP_OK);
    }
    assert_int_equal(processes[0].out.lost, 1);
    for (size_t i = 0; i < PAIRS; i++)
        assert_compared(i);
    end();
}

/* A message that ends anywhere leaves something that can be released, and says that it failed. */
static void
a_result_cut_short_anywhere_is_refused(void **state)
{
    msp_buf whole = {0};
    msp_pack p = {.out = &whole};

    (void)state;
    begin(1);
    compare_one(&processes[0], 7);
    msp_pack_pair(&p, &processes[0].out.pairs[7]);
    msp_pack_job(&p, &processes[0].parts[7].job);
    for (size_t n = 0; n < whole.len; n++) {
        msp_compare_pair pair = {0};
        msp_job_part *part = NULL;
        msp_pack q = {.at = whole.p, .end = whole.p + n};

        msp_pack_pair(&q, &pair);
        msp_pack_job(&q, &part);
        assert_true(q.failed);
        msp_result_release_pair(&pair);
        msp_job_part_close(part);
    }
    msp_buf_release(&whole);
    end();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_pair_is_done_once_and_comes_back_whole),
        TEST(what_a_dead_process_had_is_done_by_others),
        TEST(what_a_process_cannot_read_is_done_by_the_first),
        TEST(all_others_may_die),
        TEST(without_work_the_others_are_let_go),
        TEST(without_a_leader_the_others_end),
        TEST(another_build_is_not_worked_with),
        TEST(a_result_cut_short_anywhere_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
