/* follow.c - a process that works for process 0: see share.h. */
#include <pthread.h>
#include "compare/layout/layout.h"
#include "compare/share/talk.h"
#include "core/alloc.h"
#include "core/vec.h"

/* A message that is to be sent. */
typedef struct outgoing {
    msp_talk what;
    msp_buf more;
} outgoing;

/* The thread that works takes pairs from todo and leaves packed results in done. */
typedef struct follower {
    const msp_share *s;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    size_t *todo;
    size_t ntodo, cap_todo;
    outgoing *done;
    size_t ndone, cap_done;
    bool is_busy, is_over, failed;
    double heard, said;
    bool asked;
} follower;

/* ---- the thread that works --------------------------------------------------------------------------------------- */

static void
pack_result(msp_buf *out, const msp_share *s, size_t pair)
{
    msp_pack p = {.out = out};
    uint64_t index = pair;

    msp_pack_raw(&p, &index, sizeof(index));
    msp_pack_pair(&p, &s->out->pairs[pair]);
    msp_pack_job(&p, &s->parts[pair].job);
    msp_pack_da(&p, &s->parts[pair].da);
    msp_pack_page(&p, s->run->page != NULL ? &s->run->page->parts[pair] : &(msp_page_part *){NULL});
}

/* What was sent is not needed here any more. */
static void
forget_pair(const msp_share *s, size_t pair)
{
    msp_result_release_pair(&s->out->pairs[pair]);
    msp_pack_plan_release(&s->plan->pairs[pair]);
    msp_job_part_close(s->parts[pair].job);
    msp_da_rank_close(s->parts[pair].da);
    s->parts[pair] = (msp_pair_parts){0};
    if (s->run->page != NULL) {
        msp_page_part_leave(s->run->page->parts[pair]);
        s->run->page->parts[pair] = NULL;
    }
}

/* What may go well where process 0 runs: another machine may see other files and have more memory. */
static bool
depends_on_the_machine(msp_status st)
{
    return st == MSP_E_IO || st == MSP_E_NOT_FOUND || st == MSP_E_CHANGED || st == MSP_E_NOMEM;
}

static void
hand_in(follower *f, size_t pair)
{
    bool refused = depends_on_the_machine(f->s->out->pairs[pair].status);
    outgoing result = {refused ? TALK_REFUSED : TALK_RESULT, {0}};
    uint64_t index = pair;

    if (refused)
        msp_buf_add(&result.more, &index, sizeof(index));
    else
        pack_result(&result.more, f->s, pair);
    forget_pair(f->s, pair);
    pthread_mutex_lock(&f->lock);
    if (result.more.failed || !msp_vec_grow((void **)&f->done, &f->cap_done, f->ndone + 1, sizeof(*f->done))) {
        f->failed = true;
        msp_buf_release(&result.more);
    } else {
        f->done[f->ndone++] = result;
    }
    pthread_mutex_unlock(&f->lock);
}

static void *
work_on(void *payload)
{
    follower *f = payload;
    size_t pairs[TALK_PAIRS_AT_ONCE], n;

    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->ntodo == 0 && !f->is_over)
            pthread_cond_wait(&f->wake, &f->lock);
        if (f->is_over)
            break;
        n = f->ntodo < TALK_PAIRS_AT_ONCE ? f->ntodo : TALK_PAIRS_AT_ONCE;
        memcpy(pairs, f->todo, n * sizeof(*pairs));
        f->ntodo -= n;
        memmove(f->todo, f->todo + n, f->ntodo * sizeof(*f->todo));
        f->is_busy = true;
        pthread_mutex_unlock(&f->lock);
        f->s->work(pairs, n, f->s->payload);
        for (size_t i = 0; i < n; i++)
            hand_in(f, pairs[i]);
        pthread_mutex_lock(&f->lock);
        f->is_busy = false;
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- the thread that speaks -------------------------------------------------------------------------------------- */

static void
send_results(follower *f)
{
    for (;;) {
        outgoing result = {0};

        pthread_mutex_lock(&f->lock);
        if (f->ndone > 0) {
            result = f->done[0];
            memmove(f->done, f->done + 1, --f->ndone * sizeof(*f->done));
        }
        pthread_mutex_unlock(&f->lock);
        if (result.more.p == NULL)
            return;
        f->failed = f->failed || !msp_talk_say(f->s->link, 0, result.what, &result.more);
        msp_buf_release(&result.more);
    }
}

/* The next pairs are asked for while the last ones are being compared. */
static void
ask_for_more(follower *f)
{
    bool wants;

    pthread_mutex_lock(&f->lock);
    wants = f->ntodo == 0 && !f->asked;
    f->asked = f->asked || wants;
    pthread_mutex_unlock(&f->lock);
    if (wants)
        f->failed = f->failed || !msp_talk_say(f->s->link, 0, TALK_WANT, NULL);
}

static bool
take_pair(follower *f, msp_pack *p)
{
    const msp_share *s = f->s;
    msp_plan_pair plan = {0};
    msp_compare_pair *out;
    uint64_t index;

    msp_pack_raw(p, &index, sizeof(index));
    msp_pack_plan(p, &plan);
    if (p->failed || index >= s->plan->npairs || s->plan->pairs[index].npu != NULL) {
        msp_pack_plan_release(&plan);
        return false;
    }
    s->plan->pairs[index] = plan;
    out = &s->out->pairs[index];
    *out = (msp_compare_pair){.kind = plan.npu->kind, .step = plan.npu->step, .rank = plan.npu->rank};
    out->bench_step = plan.bench->step;
    out->bench_rank = plan.bench->rank;
    out->label = msp_result_text(msp_str_of(plan.label));
    out->group = msp_result_text(msp_str_of(plan.npu->group));
    out->npu_path = msp_result_text(msp_str_of(plan.npu->path));
    out->bench_path = msp_result_text(msp_str_of(plan.bench->path));
    return out->label != NULL && out->group != NULL && out->npu_path != NULL && out->bench_path != NULL &&
           msp_vec_grow((void **)&f->todo, &f->cap_todo, f->ntodo + 1, sizeof(*f->todo)) &&
           (f->todo[f->ntodo++] = (size_t)index, true);
}

static void
take_pairs(follower *f, const char *bytes, size_t n)
{
    msp_pack p = {.at = bytes, .end = bytes + n};

    pthread_mutex_lock(&f->lock);
    f->asked = false;
    while (p.at < p.end && !f->failed)
        f->failed = !take_pair(f, &p);
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
}

static void
say_bye(const follower *f)
{
    const msp_name_map *names = f->s->run->names;
    const msp_layout *layout = f->s->run->layout;
    msp_buf use = {0};

    if (names != NULL && names->is_used)
        for (size_t i = 0; i < names->names.count; i++)
            msp_buf_char(&use, (char)atomic_load(&names->use[i]));
    for (size_t i = 0; layout != NULL && i < layout->nrules; i++)
        msp_buf_char(&use, (char)atomic_load(&layout->used[i]));
    (void)msp_talk_say(f->s->link, 0, TALK_BYE, &use);
    msp_buf_release(&use);
}

/* How many processes the leader has lost. */
static uint64_t
read_lost(const char *bytes, size_t n)
{
    msp_pack p = {.at = bytes, .end = bytes + n};
    uint64_t lost;

    msp_pack_raw(&p, &lost, sizeof(lost));
    return lost;
}

/* True when the leader has ended it. */
static bool
listen_to_leader(follower *f)
{
    msp_link *l = f->s->link;
    bool is_end = false;
    void *bytes;
    size_t n;
    int from, got = l->recv(l, &from, &bytes, &n, 1);

    if (got < 0)
        f->failed = true;
    if (got <= 0)
        return false;
    f->heard = msp_talk_now();
    if (from == 0 && n > 0 && *(const char *)bytes == TALK_PAIRS)
        take_pairs(f, (const char *)bytes + 1, n - 1);
    is_end = from == 0 && n > 0 && *(const char *)bytes == TALK_END;
    if (is_end)
        f->s->out->lost = (size_t)read_lost((const char *)bytes + 1, n - 1);
    l->drop(l, bytes);
    return is_end;
}

static msp_status
converse_with_leader(follower *f, msp_error *err)
{
    msp_link *l = f->s->link;

    f->heard = f->said = msp_talk_now();
    while (!f->failed) {
        double now;

        ask_for_more(f);
        send_results(f);
        if (listen_to_leader(f)) {
            say_bye(f);
            return MSP_OK;
        }
        now = msp_talk_now();
        if (now - f->said > 1) {
            f->said = now;
            (void)msp_talk_say(l, 0, TALK_ALIVE, NULL);
        }
        if (now - f->heard > msp_talk_silence(l))
            return msp_error_set(err, MSP_E_IO, "process %d has heard nothing of process 0 for %d seconds and ends",
                                 l->rank, msp_talk_silence(l));
        if (f->s->run->cancelled || !msp_run_tick(f->s->run))
            return msp_error_set(err, MSP_E_CANCELLED, "cancelled");
    }
    return msp_error_set(err, MSP_E_IO, "process %d cannot go on: no memory, or process 0 is gone", l->rank);
}

msp_status
msp_share_follow(const msp_share *s, msp_error *err)
{
    follower f = {.s = s};
    pthread_t thread;
    msp_status st;

    pthread_mutex_init(&f.lock, NULL);
    pthread_cond_init(&f.wake, NULL);
    if (pthread_create(&thread, NULL, work_on, &f) != 0)
        return msp_error_set(err, MSP_E_LIMIT, "process %d cannot start a thread", s->link->rank);
    st = converse_with_leader(&f, err);
    pthread_mutex_lock(&f.lock);
    f.is_over = true;
    s->run->cancelled = true; /* whatever is still being done is wanted no more */
    pthread_cond_signal(&f.wake);
    pthread_mutex_unlock(&f.lock);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < f.ndone; i++)
        msp_buf_release(&f.done[i].more);
    msp_free(f.done);
    msp_free(f.todo);
    pthread_cond_destroy(&f.wake);
    pthread_mutex_destroy(&f.lock);
    return st;
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

static bool
read_setup(msp_share_setup *out, const char *bytes, size_t n)
{
    msp_pack p = {.at = bytes, .end = bytes + n};
    uint64_t npairs;

    msp_pack_raw(&p, &npairs, sizeof(npairs));
    msp_pack_text(&p, &out->timestamp);
    out->npairs = (size_t)npairs;
    return !p.failed;
}

msp_status
msp_share_join(msp_share_setup *out, msp_link *link, msp_error *err)
{
    char own[MSP_TALK_IDENTITY];
    msp_buf hello = {0};
    double start = msp_talk_now();
    msp_status st = MSP_E_NOT_FOUND;

    *out = (msp_share_setup){0};
    msp_talk_identity(own);
    msp_buf_text(&hello, own);
    if (!msp_talk_say(link, 0, TALK_HELLO, &hello))
        st = msp_error_set(err, MSP_E_IO, "process %d cannot reach process 0", link->rank);
    msp_buf_release(&hello);
    while (st == MSP_E_NOT_FOUND) {
        void *bytes;
        size_t n;
        int from, got = link->recv(link, &from, &bytes, &n, 10);

        if (got < 0 || (got == 0 && msp_talk_now() - start > 10 * msp_talk_silence(link)))
            return msp_error_set(err, MSP_E_IO, "process %d waited in vain for process 0 to begin", link->rank);
        if (got == 0)
            continue;
        if (from == 0 && n > 0 && *(const char *)bytes == TALK_END) {
            (void)msp_talk_say(link, 0, TALK_BYE, NULL);
            st = MSP_E_CANCELLED;
        } else if (from == 0 && n > 0 && *(const char *)bytes == TALK_SETUP) {
            st = read_setup(out, (const char *)bytes + 1, n - 1) ? MSP_OK
                                                                 : msp_error_set(err, MSP_E_NOMEM, "out of memory");
        }
        link->drop(link, bytes);
    }
    return st;
}
