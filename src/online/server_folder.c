/* server_folder.c - the checker's side of a shared folder: calls are claimed, answered and removed there. */
#include <stdio.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/path.h"
#include "online/call.h"
#include "online/server.h"

void
msp_server_answer_in_folder(msp_online_server *s, const char *id, uint64_t number, const msp_buf *frame)
{
    char path[4096];
    msp_error err;

    if (msp_exchange_path(path, sizeof(path), s->folder, id, number, "verdict", &err) != MSP_OK ||
        msp_exchange_put_frame(path, frame, &err) != MSP_OK)
        msp_server_tell(s, "%s", err.message);
}

/* Claim a call and look at it. */
static void
claim(msp_online_server *s, const msp_exchange_name *n)
{
    char from[4096], to[4096], why[400];
    msp_online_call call;
    msp_error err;
    msp_buf frame = {0};
    char *path;
    msp_server_job *j = NULL;

    if (msp_exchange_path(from, sizeof(from), s->folder, n->job, n->number, "call", &err) != MSP_OK ||
        msp_exchange_path(to, sizeof(to), s->folder, n->job, n->number, "claimed", &err) != MSP_OK ||
        rename(from, to) != 0)
        return; /* somebody else was faster */
    if (msp_online_call_open(&call, to, &err) != MSP_OK) {
        msp_server_put_verdict(&frame, n->number, MSP_PRECHECK_SKIP, (msp_str){"", 0}, msp_str_of(err.message));
    } else if (!msp_server_selects(s, call.rank)) {
        size_t begin = msp_wire_begin(&frame, MSP_WIRE_REFUSED);

        msp_server_say_unselected(s, call.rank, why, sizeof(why));
        msp_wire_put_text(&frame, msp_str_of(why));
        msp_wire_end(&frame, begin);
        if (s->served.refused++ == 0)
            msp_server_tell(s, "refused: %s", why);
    } else {
        j = msp_server_job_of(s, n->job, call.rank);
    }
    msp_online_call_release(&call);
    path = msp_path_join("", to);
    if (j != NULL && path != NULL && msp_server_add(s, j, n->number, path, true, &err))
        return;
    if (frame.len == 0)
        msp_server_put_verdict(&frame, n->number, MSP_PRECHECK_SKIP, (msp_str){"", 0}, msp_str_of(err.message));
    msp_server_answer_in_folder(s, n->job, n->number, &frame);
    msp_buf_release(&frame);
    unlink(to);
}

static void
take_message(msp_online_server *s, const msp_exchange_name *n, const char *file)
{
    char path[4096], *text = NULL;
    msp_wire_frame f;
    msp_error err;
    bool good;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", s->folder, file) >= sizeof(path))
        return;
    good = msp_exchange_get_frame(&f, &text, path, &err) == MSP_OK;
    unlink(path);
    for (size_t i = 0; good && i < s->njobs; i++) {
        msp_server_job *j = s->jobs[i];

        if (strcmp(j->id, n->job) != 0)
            continue;
        if (f.kind == MSP_WIRE_END)
            j->ended = true;
        else if (f.kind == MSP_WIRE_STEP)
            msp_server_end_step(s, j->rank, n->number);
    }
    msp_free(text);
    if (!good)
        msp_server_tell(s, "%s", err.message);
    pthread_cond_broadcast(&s->news_come);
}

static void
beat(msp_online_server *s)
{
    char path[4096];
    msp_buf frame = {0};
    msp_error err;

    if (msp_now_ms() - s->beat_ms < MSP_EXCHANGE_BEAT_MS)
        return;
    s->beat_ms = msp_now_ms();
    msp_wire_put_numbers(&frame, MSP_WIRE_ALIVE, (uint64_t[]){++s->beat, s->limit}, 2);
    snprintf(path, sizeof(path), "%s/checker.alive", s->folder);
    if (msp_exchange_put_frame(path, &frame, &err) != MSP_OK) {
        pthread_mutex_lock(&s->lock);
        msp_server_tell(s, "%s", err.message);
        pthread_mutex_unlock(&s->lock);
    }
    msp_buf_release(&frame);
}

void
msp_server_look_into_folder(msp_online_server *s)
{
    msp_dir_list names;

    beat(s);
    if (msp_dir_list_read(&names, s->folder, NULL) != MSP_OK)
        return;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < names.count; i++) {
        msp_exchange_name n = msp_exchange_parse(names.names[i]);

        if (n.kind == MSP_FILE_CALL && s->waiting < s->limit)
            claim(s, &n);
        else if (n.kind == MSP_FILE_STEP || n.kind == MSP_FILE_END)
            take_message(s, &n, names.names[i]);
        if (n.kind != MSP_FILE_OTHER && n.kind != MSP_FILE_VERDICT)
            s->busy_ms = msp_now_ms();
    }
    pthread_mutex_unlock(&s->lock);
    msp_dir_list_release(&names);
}

void
msp_server_give_back_claims(const char *folder)
{
    msp_dir_list names;
    char from[4096], to[4096];

    if (msp_dir_list_read(&names, folder, NULL) != MSP_OK)
        return;
    for (size_t i = 0; i < names.count; i++) {
        msp_exchange_name n = msp_exchange_parse(names.names[i]);

        if (n.kind == MSP_FILE_CLAIMED &&
            msp_exchange_path(from, sizeof(from), folder, n.job, n.number, "claimed", NULL) == MSP_OK &&
            msp_exchange_path(to, sizeof(to), folder, n.job, n.number, "call", NULL) == MSP_OK && rename(from, to) != 0)
            continue; /* gone already */
    }
    msp_dir_list_release(&names);
}
