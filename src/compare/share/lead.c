/* lead.c - process 0, which hands out pairs and gathers results: see share.h. */
#include <pthread.h>
#include "compare/layout/layout.h"
#include "compare/share/talk.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/vec.h"

enum { DEATHS = 2 }; /* of processes that had a pair, before it is given up */

typedef struct peer {
    bool met, dead, hungry;
    double heard;
    size_t *pairs; /* that it has */
    size_t npairs, cap;
} peer;

typedef struct leader {
    const msp_share *s;
    peer *peers; /* by number of the process; the first is this one, and unused */
    double said;
    size_t lost;
    msp_status status;
    msp_error *err;

    /* what the thread that works looks at, too */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    const size_t *queue; /* pairs to be handed out, in this order */
    size_t next, nqueue;
    int64_t *weight;  /* of a pair by its number */
    int64_t left;     /* weight of those not handed out */
    size_t *returned; /* by processes that died */
    size_t nreturned;
    size_t *refused; /* by processes that could not compare them: they are done here */
    size_t nrefused;
    uint8_t *deaths;
    size_t ndone;
    bool is_over;
} leader;

/* ---- the queue; with the lock held ------------------------------------------------------------------------------- */

/*
 * The pairs for somebody who asks: the largest one left, and more of them as long as together they are a small share of
 * what is left, so that small pairs need few messages and the end is even. What came back goes out one by one.
 */
static size_t
take_pairs(leader *a, size_t pairs[TALK_PAIRS_AT_ONCE])
{
    int64_t share = a->left / (4 * a->s->link->size), taken = 0;
    size_t n = 0;

    if (a->nreturned > 0) {
        pairs[0] = a->returned[--a->nreturned];
        return 1;
    }
    while (a->next < a->nqueue && n < TALK_PAIRS_AT_ONCE && (n == 0 || taken + a->weight[a->queue[a->next]] < share)) {
        pairs[n] = a->queue[a->next++];
        taken += a->weight[pairs[n++]];
    }
    a->left -= taken;
    return n;
}

static size_t
take_refused(leader *a, size_t pairs[TALK_PAIRS_AT_ONCE])
{
    if (a->nrefused == 0)
        return 0;
    pairs[0] = a->refused[--a->nrefused];
    return 1;
}

/* ---- the thread that works --------------------------------------------------------------------------------------- */

static void *
work_too(void *payload)
{
    leader *a = payload;
    size_t pairs[TALK_PAIRS_AT_ONCE], n;

    pthread_mutex_lock(&a->lock);
    while (!a->is_over) {
        n = take_refused(a, pairs);
        n = n > 0 ? n : take_pairs(a, pairs);
        if (n == 0) {
            pthread_cond_wait(&a->wake, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        a->s->work(pairs, n, a->s->payload);
        pthread_mutex_lock(&a->lock);
        a->ndone += n;
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- processes that die ------------------------------------------------------------------------------------------ */

static void
give_up(leader *a, size_t pair)
{
    msp_compare_pair *out = &a->s->out->pairs[pair];

    out->status = MSP_E_IO;
    out->error = msp_result_text(MSP_STR("not compared: the processes that tried it died"));
    if (out->error != NULL)
        msp_log(MSP_LOG_ERROR, "%s: %s", out->label, out->error);
    a->ndone++;
}

static void
bury_peer(leader *a, int number, const char *why)
{
    peer *p = &a->peers[number];

    if (p->dead)
        return;
    p->dead = true;
    a->lost++;
    msp_warning("process %d %s; %zu pairs that it had are done by others", number, why, p->npairs);
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < p->npairs; i++)
        if (++a->deaths[p->pairs[i]] >= DEATHS)
            give_up(a, p->pairs[i]);
        else
            a->returned[a->nreturned++] = p->pairs[i];
    p->npairs = 0;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

/* ---- speaking ---------------------------------------------------------------------------------------------------- */

static void
say_to_peer(leader *a, int to, msp_talk what, const msp_buf *more)
{
    if (!a->peers[to].dead && !msp_talk_say(a->s->link, to, what, more))
        bury_peer(a, to, "cannot be reached");
}

static void
say_setup(leader *a, int to)
{
    uint64_t npairs = a->s->plan->npairs;
    char *timestamp = (char *)a->s->run->timestamp;
    msp_buf b = {0};
    msp_pack p = {.out = &b};

    msp_pack_raw(&p, &npairs, sizeof(npairs));
    msp_pack_text(&p, &timestamp);
    say_to_peer(a, to, TALK_SETUP, &b);
    msp_buf_release(&b);
}

static void
feed_peer(leader *a, int to)
{
    size_t pairs[TALK_PAIRS_AT_ONCE], n;
    peer *p = &a->peers[to];
    msp_buf b = {0};
    msp_pack pack = {.out = &b};

    pthread_mutex_lock(&a->lock);
    n = take_pairs(a, pairs);
    pthread_mutex_unlock(&a->lock);
    p->hungry = n == 0;
    if (n == 0)
        return;
    if (!msp_vec_grow((void **)&p->pairs, &p->cap, p->npairs + n, sizeof(*p->pairs))) {
        a->status = msp_error_set(a->err, MSP_E_NOMEM, "out of memory");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t index = pairs[i];

        p->pairs[p->npairs++] = pairs[i];
        msp_pack_raw(&pack, &index, sizeof(index));
        msp_pack_plan(&pack, &a->s->plan->pairs[pairs[i]]);
    }
    say_to_peer(a, to, TALK_PAIRS, &b);
    msp_buf_release(&b);
}

/* ---- listening --------------------------------------------------------------------------------------------------- */

static bool
take_from_peer(peer *p, size_t pair)
{
    for (size_t i = 0; i < p->npairs; i++)
        if (p->pairs[i] == pair) {
            p->pairs[i] = p->pairs[--p->npairs];
            return true;
        }
    return false;
}

/* The process sees other files than this one, or has no memory: what it says of the pair is not the last word. */
static void
take_refusal(leader *a, int from, const char *bytes, size_t n)
{
    msp_pack p = {.at = bytes, .end = bytes + n};
    uint64_t index;

    msp_pack_raw(&p, &index, sizeof(index));
    if (p.failed || index >= a->s->plan->npairs || !take_from_peer(&a->peers[from], (size_t)index)) {
        bury_peer(a, from, "sent what nobody asked for");
        return;
    }
    pthread_mutex_lock(&a->lock);
    a->refused[a->nrefused++] = (size_t)index;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

static void
take_result(leader *a, int from, const char *bytes, size_t n)
{
    msp_pack p = {.at = bytes, .end = bytes + n};
    const msp_share *s = a->s;
    msp_page_part *page = NULL;
    uint64_t index;

    msp_pack_raw(&p, &index, sizeof(index));
    if (p.failed || index >= s->plan->npairs || !take_from_peer(&a->peers[from], (size_t)index)) {
        bury_peer(a, from, "sent what nobody asked for");
        return;
    }
    msp_pack_pair(&p, &s->out->pairs[index]);
    msp_pack_job(&p, &s->parts[index].job);
    msp_pack_da(&p, &s->parts[index].da);
    msp_pack_page(&p, &page);
    if (s->run->page != NULL)
        s->run->page->parts[index] = page;
    if (p.failed) {
        s->out->pairs[index].status = MSP_E_NOMEM;
        if (s->out->pairs[index].error == NULL)
            s->out->pairs[index].error = msp_result_text(MSP_STR("its result could not be taken over"));
    }
    (void)msp_run_json(s->run, s->plan->pairs[index].label, a->weight[index]);
    (void)msp_run_pair_done(s->run);
    pthread_mutex_lock(&a->lock);
    a->ndone++;
    pthread_mutex_unlock(&a->lock);
}

static void
hear_peer(leader *a, int from, const char *bytes, size_t n)
{
    peer *p = &a->peers[from];

    p->heard = msp_talk_now();
    if (p->dead || n == 0)
        return;
    if (bytes[0] == TALK_HELLO) {
        char own[MSP_TALK_IDENTITY];

        msp_talk_identity(own);
        if (!msp_str_eq((msp_str){bytes + 1, n - 1}, msp_str_of(own))) {
            bury_peer(a, from, "runs another build of msprobe");
            return;
        }
        p->met = true;
        say_setup(a, from);
    } else if (p->met && bytes[0] == TALK_WANT) {
        p->hungry = true;
    } else if (p->met && bytes[0] == TALK_RESULT) {
        take_result(a, from, bytes + 1, n - 1);
    } else if (p->met && bytes[0] == TALK_REFUSED) {
        take_refusal(a, from, bytes + 1, n - 1);
    }
}

static void
look_after_peers(leader *a)
{
    double now = msp_talk_now();

    for (int i = 1; i < a->s->link->size; i++)
        if (a->peers[i].hungry && !a->peers[i].dead)
            feed_peer(a, i);
    if (now - a->said < 1)
        return;
    a->said = now;
    for (int i = 1; i < a->s->link->size; i++) {
        peer *p = &a->peers[i];

        if (p->dead)
            continue;
        say_to_peer(a, i, TALK_ALIVE, NULL);
        if (p->met && now - p->heard > msp_talk_silence(a->s->link))
            bury_peer(a, i, "is silent");
    }
}

static bool
is_done(leader *a)
{
    bool done;

    pthread_mutex_lock(&a->lock);
    done = a->ndone >= a->nqueue;
    pthread_mutex_unlock(&a->lock);
    return done;
}

static void
converse_with_peers(leader *a)
{
    msp_link *l = a->s->link;

    while (!is_done(a) && a->status == MSP_OK) {
        void *bytes;
        size_t n;
        int from, got = l->recv(l, &from, &bytes, &n, 1);

        if (got > 0) {
            if (from > 0 && from < l->size)
                hear_peer(a, from, bytes, n);
            l->drop(l, bytes);
        }
        for (int i = 1; got < 0 && i < l->size; i++)
            bury_peer(a, i, "cannot be heard");
        look_after_peers(a);
        if (a->s->run->cancelled || !msp_run_tick(a->s->run))
            return;
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static msp_status
prepare_leader(leader *a, const size_t *pairs, size_t n, msp_error *err)
{
    const msp_plan *plan = a->s->plan;
    double now = msp_talk_now();

    a->peers = msp_alloc_zero((size_t)a->s->link->size, sizeof(*a->peers));
    a->weight = msp_alloc_zero(plan->npairs, sizeof(*a->weight));
    a->returned = msp_alloc_zero(plan->npairs, sizeof(*a->returned));
    a->refused = msp_alloc_zero(plan->npairs, sizeof(*a->refused));
    a->deaths = msp_alloc_zero(plan->npairs, 1);
    if (a->peers == NULL || a->weight == NULL || a->returned == NULL || a->refused == NULL || a->deaths == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    a->said = now;
    for (int i = 0; i < a->s->link->size; i++)
        a->peers[i].heard = now;
    for (size_t i = 0; i < n; i++) {
        a->weight[pairs[i]] = msp_plan_weight(&plan->pairs[pairs[i]]);
        a->left += a->weight[pairs[i]];
    }
    return MSP_OK;
}

static void
release_leader(leader *a)
{
    for (int i = 0; a->peers != NULL && i < a->s->link->size; i++)
        msp_free(a->peers[i].pairs);
    msp_free(a->peers);
    msp_free(a->weight);
    msp_free(a->returned);
    msp_free(a->refused);
    msp_free(a->deaths);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
}

msp_status
msp_share_lead(const msp_share *s, const size_t *pairs, size_t n, msp_error *err)
{
    leader a = {.s = s, .queue = pairs, .nqueue = n, .err = err, .status = MSP_OK};
    pthread_t thread;

    pthread_mutex_init(&a.lock, NULL);
    pthread_cond_init(&a.wake, NULL);
    a.status = prepare_leader(&a, pairs, n, err);
    if (a.status == MSP_OK && pthread_create(&thread, NULL, work_too, &a) != 0)
        a.status = msp_error_set(err, MSP_E_LIMIT, "no thread can be started");
    if (a.status == MSP_OK) {
        converse_with_peers(&a);
        pthread_mutex_lock(&a.lock);
        a.is_over = true;
        pthread_cond_signal(&a.wake);
        pthread_mutex_unlock(&a.lock);
        pthread_join(thread, NULL);
        for (size_t i = 0; i < n && s->run->cancelled; i++)
            if (s->out->pairs[pairs[i]].counts.rows == 0 && s->out->pairs[pairs[i]].status == MSP_OK)
                s->out->pairs[pairs[i]].status = MSP_E_CANCELLED;
    }
    s->out->lost = a.lost;
    release_leader(&a);
    return a.status;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void
note_names(msp_name_map *names, const char *use, size_t n)
{
    if (n != names->names.count)
        return;
    atomic_store(&names->is_used, true);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)use[i] > atomic_load(&names->use[i]))
            atomic_store(&names->use[i], (unsigned char)use[i]);
}

/* Which lines of the mapping or rules of the layout another process has met: a run has only one of them. */
static void
note_use(const msp_run *run, const char *use, size_t n)
{
    if (run != NULL && run->names != NULL)
        note_names(run->names, use, n);
    for (size_t i = 0; run != NULL && run->layout != NULL && n == run->layout->nrules && i < n; i++)
        if (use[i] != 0)
            atomic_store(&run->layout->used[i], 1);
}

void
msp_share_end(msp_link *link, const msp_run *run, bool in_haste, size_t *lost)
{
    double patience = in_haste ? 0.1 : msp_talk_silence(link);
    double start = msp_talk_now();
    uint64_t gone = *lost;
    int waiting = 0;
    size_t dead = 0;
    msp_buf end = {0};

    msp_buf_add(&end, &gone, sizeof(gone));
    for (int i = 1; i < link->size; i++)
        if (msp_talk_say(link, i, TALK_END, &end))
            waiting++;
        else
            dead++;
    msp_buf_release(&end);
    /* those that are known to be dead are not waited for */
    waiting -= *lost > dead ? (int)(*lost - dead) : 0;
    while (waiting > 0 && msp_talk_now() - start < patience) {
        void *bytes;
        size_t n;
        int from, got = link->recv(link, &from, &bytes, &n, 10);

        if (got < 0)
            break;
        if (got == 0)
            continue;
        if (n > 0 && *(const char *)bytes == TALK_BYE) {
            note_use(run, (const char *)bytes + 1, n - 1);
            waiting--;
        }
        link->drop(link, bytes);
    }
    if (waiting > 0)
        *lost += (size_t)waiting;
    if (dead > *lost)
        *lost = dead;
}
