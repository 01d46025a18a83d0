/* server_queue.c - calls that wait for being checked, verdicts that wait for being acknowledged, and the rows. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/path.h"
#include "core/vec.h"
#include "online/call.h"
#include "online/server.h"

enum {
    JOBS_MOST = 4096,
    KEPT_MOST = 1024 /* verdicts of a job that wait for being acknowledged; more than a sender has on its way */
};

/* ---- what is told ------------------------------------------------------------------------------------------------ */

void
msp_server_tell(msp_online_server *s, const char *format, ...)
{
    va_list args;

    if (s->nnews == MSP_SERVER_NEWS)
        return; /* who reads them is far behind; the counts go on */
    va_start(args, format);
    vsnprintf(s->news[(s->news_at + s->nnews++) % MSP_SERVER_NEWS], sizeof(s->news[0]), format, args);
    va_end(args);
    pthread_cond_broadcast(&s->news_come);
}

bool
msp_online_server_news(msp_online_server *s, char line[512])
{
    bool any;

    pthread_mutex_lock(&s->lock);
    any = s->nnews > 0;
    if (any) {
        memcpy(line, s->news[s->news_at], 512);
        s->news_at = (s->news_at + 1) % MSP_SERVER_NEWS;
        s->nnews--;
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}

void
msp_server_fail(msp_online_server *s, const msp_error *err)
{
    if (!s->failed)
        s->failure = *err;
    s->failed = true;
    pthread_cond_broadcast(&s->news_come);
}

/* ---- jobs and entries -------------------------------------------------------------------------------------------- */

bool
msp_server_selects(const msp_online_server *s, uint64_t rank)
{
    for (size_t i = 0; i < s->nranks; i++)
        if (s->ranks[i] == rank)
            return true;
    return false;
}

msp_server_job *
msp_server_job_of(msp_online_server *s, const char *id, uint64_t rank)
{
    msp_server_job *j;

    for (size_t i = 0; i < s->njobs; i++)
        if (strcmp(s->jobs[i]->id, id) == 0)
            return s->jobs[i]->rank == rank ? s->jobs[i] : NULL;
    if (s->njobs == JOBS_MOST || !msp_vec_grow((void **)&s->jobs, &s->jobs_cap, s->njobs + 1, sizeof(*s->jobs)))
        return NULL;
    j = msp_alloc_zero(1, sizeof(*j));
    if (j == NULL)
        return NULL;
    snprintf(j->id, sizeof(j->id), "%s", id);
    j->rank = rank;
    return s->jobs[s->njobs++] = j;
}

msp_server_verdict *
msp_server_kept(const msp_server_job *j, uint64_t number)
{
    for (size_t i = 0; i < j->nkept; i++)
        if (j->kept[i].number == number)
            return &j->kept[i];
    return NULL;
}

void
msp_server_forget(msp_server_job *j, uint64_t number)
{
    msp_server_verdict *k = msp_server_kept(j, number);

    if (k == NULL)
        return;
    msp_buf_release(&k->frame);
    memmove(k, k + 1, (size_t)(j->kept + j->nkept - (k + 1)) * sizeof(*k));
    j->nkept--;
}

void
msp_server_put_verdict(msp_buf *b, uint64_t number, unsigned status, msp_str result, msp_str details)
{
    size_t begin = msp_wire_begin(b, MSP_WIRE_VERDICT);

    msp_wire_put_u(b, number, 8);
    msp_wire_put_u(b, status, 1);
    msp_wire_put_text(b, result);
    msp_wire_put_text(b, details);
    msp_wire_end(b, begin);
}

msp_status
msp_server_keep(msp_server_job *j, uint64_t number, unsigned status, msp_str result, msp_str details, msp_error *err)
{
    msp_server_verdict k = {.number = number};

    if (j->nkept == KEPT_MOST)
        msp_server_forget(j, j->kept[0].number);
    msp_server_put_verdict(&k.frame, number, status, result, details);
    if (k.frame.failed || !msp_vec_grow((void **)&j->kept, &j->cap, j->nkept + 1, sizeof(*j->kept))) {
        msp_buf_release(&k.frame);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    j->kept[j->nkept++] = k;
    return MSP_OK;
}

bool
msp_server_is_waiting(const msp_online_server *s, const msp_server_job *j, uint64_t number)
{
    for (size_t i = 0; i < s->nentries; i++)
        if (s->entries[i]->job == j && s->entries[i]->number == number)
            return true;
    return false;
}

void
msp_server_free_entry(msp_server_entry *e)
{
    msp_free(e->path);
    msp_free(e->name);
    msp_free(e);
}

bool
msp_server_add(msp_online_server *s, msp_server_job *j, uint64_t number, char *path_take, bool in_folder,
               msp_error *why)
{
    msp_online_call call;
    msp_server_entry *e = msp_alloc_zero(1, sizeof(*e));
    struct stat sb;
    bool good = e != NULL && msp_online_call_open(&call, path_take, why) == MSP_OK;

    if (!good) {
        if (e == NULL)
            msp_error_set(why, MSP_E_NOMEM, "out of memory");
        unlink(path_take);
        msp_free(e);
        msp_free(path_take);
        return false;
    }
    e->path = path_take;
    e->name = msp_alloc(call.name.len + 1, 1);
    good = e->name != NULL && call.number == number && call.rank == j->rank && call.step <= INT64_MAX &&
           stat(path_take, &sb) == 0 &&
           msp_vec_grow((void **)&s->entries, &s->entries_cap, s->nentries + 1, sizeof(*s->entries));
    if (good) {
        memcpy(e->name, call.name.p, call.name.len);
        e->name[call.name.len] = '\0';
        e->id = ++s->ids;
        e->number = number;
        e->step = call.step;
        e->size = (uint64_t)sb.st_size;
        e->job = j;
        e->in_folder = in_folder;
        s->waiting += e->size;
        s->entries[s->nentries++] = e;
        s->served.calls++;
        pthread_cond_broadcast(&s->news_come);
    } else {
        msp_error_set(why, MSP_E_FORMAT, "a damaged call: it is not the one that was announced");
        unlink(path_take);
        msp_server_free_entry(e);
    }
    msp_online_call_release(&call);
    return good;
}

static void
name_ranks(const msp_online_server *s, char *out, size_t size)
{
    size_t len = 0;

    for (size_t i = 0; i < s->nranks && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%llu", i > 0 ? ", " : "", (unsigned long long)s->ranks[i]);
}

void
msp_server_say_unselected(const msp_online_server *s, uint64_t rank, char *out, size_t size)
{
    char ranks[200] = "";

    name_ranks(s, ranks, sizeof(ranks));
    snprintf(out, size, "rank %llu is not in the checker's rank_list [%s]", (unsigned long long)rank, ranks);
}

/* ---- result files ------------------------------------------------------------------------------------------------ */

static void
ignore_name(const char *name, size_t len, void *payload)
{
    (void)name;
    (void)len;
    (void)payload;
}

static msp_status
open_results(msp_online_server *s, msp_server_files *f, msp_error *err)
{
    char step[32], suffix[32], *dir;
    msp_status st;

    snprintf(step, sizeof(step), "step%llu", (unsigned long long)f->step);
    snprintf(suffix, sizeof(suffix), "_rank%llu", (unsigned long long)f->rank);
    dir = msp_path_join(s->dir, step);
    if (dir == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    st = msp_results_open(&f->results, dir, s->stamp, suffix, ignore_name, NULL, err);
    msp_free(dir);
    if (st != MSP_OK)
        return st;
    f->result = msp_path_join("", f->results.result);
    f->details = msp_path_join("", f->results.details);
    return f->result != NULL && f->details != NULL ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

static msp_status
files_of(msp_server_files **out, msp_online_server *s, uint64_t rank, uint64_t step, msp_error *err)
{
    msp_server_files *f;

    for (size_t i = 0; i < s->nfiles; i++)
        if (s->files[i]->rank == rank && s->files[i]->step == step) {
            *out = s->files[i];
            return MSP_OK;
        }
    f = msp_alloc_zero(1, sizeof(*f));
    if (f == NULL || !msp_vec_grow((void **)&s->files, &s->files_cap, s->nfiles + 1, sizeof(*s->files))) {
        msp_free(f);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    *f = (msp_server_files){.rank = rank, .step = step, .results = MSP_RESULTS_NONE};
    s->files[s->nfiles++] = *out = f;
    return MSP_OK;
}

msp_status
msp_server_add_row(msp_online_server *s, const msp_server_entry *e, msp_str result, msp_str details, msp_error *err)
{
    msp_server_files *f;
    msp_status st = files_of(&f, s, e->job->rank, e->step, err);
    const char *name;
    bool added = false;

    if (st != MSP_OK)
        return st;
    name = msp_arena_text(&f->text, e->name, strlen(e->name));
    if (name == NULL || msp_map_put(&f->names, msp_str_of(name), 0, &added) == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (!added)
        return MSP_OK;
    if (f->results.result_fd < 0)
        st = open_results(s, f, err);
    return st == MSP_OK ? msp_results_add(&f->results, e->number, result, details, err) : st;
}

void
msp_server_end_step(msp_online_server *s, uint64_t rank, uint64_t step)
{
    msp_error err;

    for (size_t i = 0; i < s->nentries; i++)
        if (s->entries[i]->job->rank == rank && s->entries[i]->step == step)
            return; /* of a sender before this one */
    for (size_t i = 0; i < s->nfiles; i++)
        if (s->files[i]->rank == rank && s->files[i]->step == step &&
            msp_results_finish(&s->files[i]->results, &err) != MSP_OK)
            msp_server_fail(s, &err);
}

static int
by_step(const void *a, const void *b)
{
    const msp_server_files *x = *(msp_server_files *const *)a, *y = *(msp_server_files *const *)b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

bool
msp_online_server_file(msp_online_server *s, size_t i, char result[4096], char details[4096])
{
    bool any;

    pthread_mutex_lock(&s->lock);
    if (s->nfiles > 1)
        qsort(s->files, s->nfiles, sizeof(*s->files), by_step);
    any = i < s->nfiles && s->files[i]->details != NULL;
    if (any) {
        snprintf(result, 4096, "%s", s->files[i]->result);
        snprintf(details, 4096, "%s", s->files[i]->details);
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}
