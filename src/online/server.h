/*
 * server.h - the checker's state, and what its parts do for each other. See server.c.
 *
 * queue: calls that wait, verdicts that wait to be acknowledged, the rows. peers: connections. folder: a shared folder.
 * Functions of the queue are called with the lock held; peers and folder are the thread's, and take it themselves.
 */
#ifndef MSP_ONLINE_SERVER_H
#define MSP_ONLINE_SERVER_H

#include <pthread.h>
#include "core/arena.h"
#include "core/map.h"
#include "core/str.h"
#include "online/conn.h"
#include "online/exchange.h"
#include "online/results.h"
#include "msprobe/online.h"

enum {
    MSP_SERVER_PEERS = 256, /* connections at a time */
    MSP_SERVER_NEWS = 64
};

typedef struct msp_server_verdict {
    uint64_t number;
    msp_buf frame;
    bool sent; /* over the job's present connection */
} msp_server_verdict;

/* A sender, which may come over several connections one after the other. */
typedef struct msp_server_job {
    char id[33];
    uint64_t rank;
    bool ended, connected;
    msp_server_verdict *kept;
    size_t nkept, cap;
} msp_server_job;

typedef struct msp_server_entry {
    uint64_t id, number, step, size;
    msp_server_job *job;
    bool taken, in_folder;
    char *path, *name;
} msp_server_entry;

typedef struct msp_server_files {
    uint64_t rank, step;
    msp_results results;
    char *result, *details;
    msp_map names;
    msp_arena text;
} msp_server_files;

typedef struct msp_server_peer {
    msp_conn conn;
    char from[32];
    msp_server_job *job;
    int64_t since_ms;
    bool leaving;               /* once everything is sent */
    uint64_t number, size, got; /* of the call that comes in */
    bool in_call, known;        /* known: it was sent before */
    int fd;
    char *path;
} msp_server_peer;

struct msp_online_server {
    pthread_mutex_t lock; /* of everything but listener, tls, peers and alive */
    pthread_cond_t news_come;
    pthread_t thread;
    bool has_thread, stop, failed;
    msp_error failure;
    char *dir, *folder, *incoming;
    char stamp[16];
    uint64_t *ranks;
    size_t nranks;
    uint64_t limit, waiting; /* bytes */
    int idle_ms;
    int64_t busy_ms; /* when somebody was there last */
    int wake;
    uint64_t ids;
    msp_server_entry **entries; /* in the order in which they came */
    size_t nentries, entries_cap;
    msp_server_job **jobs;
    size_t njobs, jobs_cap;
    msp_server_files **files;
    size_t nfiles, files_cap;
    char news[MSP_SERVER_NEWS][512];
    size_t news_at, nnews;
    msp_online_served served;
    /* the thread's */
    int listener;
    msp_tls_side *tls;
    msp_server_peer *peers[MSP_SERVER_PEERS];
    size_t npeers;
    uint64_t beat;
    int64_t beat_ms;
};

/* ---- queue ------------------------------------------------------------------------------------------------------- */

/* A line for msp_online_server_news(). */
void msp_server_tell(msp_online_server *s, const char *format, ...) MSP_PRINTF(2, 3);

/* Nothing more can be checked; msp_online_next() says why. */
void msp_server_fail(msp_online_server *s, const msp_error *err);

bool msp_server_selects(const msp_online_server *s, uint64_t rank);

/* Why a rank is refused. */
void msp_server_say_unselected(const msp_online_server *s, uint64_t rank, char *out, size_t size);

/* NULL: no memory, or too many. */
msp_server_job *msp_server_job_of(msp_online_server *s, const char *id, uint64_t rank);

/* The verdict that waits for being acknowledged, or NULL. */
msp_server_verdict *msp_server_kept(const msp_server_job *j, uint64_t number);
void msp_server_forget(msp_server_job *j, uint64_t number);
MSP_CHECK msp_status msp_server_keep(msp_server_job *j, uint64_t number, unsigned status, msp_str result,
                                     msp_str details, msp_error *err);
void msp_server_put_verdict(msp_buf *b, uint64_t number, unsigned status, msp_str result, msp_str details);

bool msp_server_is_waiting(const msp_online_server *s, const msp_server_job *j, uint64_t number);

/* Put a call that has arrived whole into the queue; path is taken. False, and why: it is none, and the file is gone. */
bool msp_server_add(msp_online_server *s, msp_server_job *j, uint64_t number, char *path_take, bool in_folder,
                    msp_error *why);
void msp_server_free_entry(msp_server_entry *e);

/* A call that comes twice, because its sender was started anew, has one row. */
MSP_CHECK msp_status msp_server_add_row(msp_online_server *s, const msp_server_entry *e, msp_str result,
                                        msp_str details, msp_error *err);

/* All rows of a step are there: put them into the order of the dump. */
void msp_server_end_step(msp_online_server *s, uint64_t rank, uint64_t step);

/* ---- peers ------------------------------------------------------------------------------------------------------- */

void msp_server_accept(msp_online_server *s);

/* Is there room for more calls? */
bool msp_server_may_read(msp_online_server *s);

/* Read and write what there is. False: it is over, and *why (NULL: nothing to tell). */
bool msp_server_talk(msp_online_server *s, msp_server_peer *p, const char **why, msp_error *err);
void msp_server_drop(msp_online_server *s, size_t i, const char *why);

/* ---- folder ------------------------------------------------------------------------------------------------------ */

void msp_server_look_into_folder(msp_online_server *s);

/* With the lock. */
void msp_server_answer_in_folder(msp_online_server *s, const char *id, uint64_t number, const msp_buf *frame);

/* What a checker before this one had claimed, and not answered. */
void msp_server_give_back_claims(const char *folder);

#endif
