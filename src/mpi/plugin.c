/*
 * plugin.c - msprobe/link.h over MPI.
 *
 * A library of its own, because it alone needs MPI: the command loads it when a launcher has started it, so that
 * everybody else needs no MPI to be installed. Messages are sent by MPI_Isend from a copy, so that nobody waits for a
 * receiver that may be dead. The others are probed for with short sleeps: a waiting process leaves its core to those
 * that work, which MPI_Recv would not.
 */
#include <mpi.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "msprobe/link.h"

#define EXPORT __attribute__((visibility("default")))

/* Nanoseconds between two looks for a message: short behind one, then doubled, as each look costs some microseconds of
 * a core that works. */
enum { TAG = 1, FIRST_SLEEP = 20000, LONGEST_SLEEP = 2000000 };

typedef struct sending {
    struct sending *next;
    MPI_Request request;
    char bytes[];
} sending;

typedef struct mpi_link {
    MPI_Comm comm;
    sending *first;
    long sleep;
} mpi_link;

static long
nanoseconds_since(const struct timespec *start)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - start->tv_sec) * 1000000000L + now.tv_nsec - start->tv_nsec;
}

/* Give back what has been sent; this also lets MPI go on with the rest. */
static void
reap(mpi_link *m)
{
    sending **at = &m->first;

    while (*at != NULL) {
        sending *s = *at;
        int done = 0;

        if (MPI_Test(&s->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done) {
            *at = s->next;
            free(s);
        } else {
            at = &s->next;
        }
    }
}

static int
send_bytes(msp_link *l, int to, const void *bytes, size_t n)
{
    mpi_link *m = l->self;
    sending *s = n > INT_MAX ? NULL : malloc(sizeof(*s) + n);

    if (s == NULL)
        return -1;
    memcpy(s->bytes, bytes, n);
    if (MPI_Isend(s->bytes, (int)n, MPI_BYTE, to, TAG, m->comm, &s->request) != MPI_SUCCESS) {
        free(s);
        return -1;
    }
    s->next = m->first;
    m->first = s;
    m->sleep = FIRST_SLEEP; /* an answer may come soon */
    reap(m);
    return 0;
}

static int
take(mpi_link *m, MPI_Status *status, int *from, void **bytes, size_t *n)
{
    int count;

    if (MPI_Get_count(status, MPI_BYTE, &count) != MPI_SUCCESS || count < 0)
        return -1;
    *from = status->MPI_SOURCE;
    *n = (size_t)count;
    *bytes = malloc(*n + 1);
    if (*bytes == NULL)
        return -1;
    if (MPI_Recv(*bytes, count, MPI_BYTE, *from, TAG, m->comm, MPI_STATUS_IGNORE) == MPI_SUCCESS)
        return 1;
    free(*bytes);
    return -1;
}

static int
recv_bytes(msp_link *l, int *from, void **bytes, size_t *n, int milliseconds)
{
    mpi_link *m = l->self;
    struct timespec start;
    MPI_Status status;
    int there = 0;

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        if (MPI_Iprobe(MPI_ANY_SOURCE, TAG, m->comm, &there, &status) != MPI_SUCCESS)
            return -1;
        if (there) {
            m->sleep = FIRST_SLEEP;
            return take(m, &status, from, bytes, n);
        }
        reap(m);
        if (nanoseconds_since(&start) >= milliseconds * 1000000L)
            return 0;
        nanosleep(&(struct timespec){0, m->sleep}, NULL);
        m->sleep = m->sleep < LONGEST_SLEEP ? 2 * m->sleep : m->sleep;
    }
}

static void
drop_bytes(msp_link *l, void *bytes)
{
    (void)l;
    free(bytes);
}

/* MPI_Finalize() waits for all: where some are gone it must not be called. */
static void
close_link(msp_link *l, bool together, int exit_status)
{
    mpi_link *m = l->self;
    struct timespec start, pause = {0, FIRST_SLEEP};

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (reap(m); m->first != NULL && nanoseconds_since(&start) < 2000000000L; reap(m))
        nanosleep(&pause, NULL);
    if (together && m->first == NULL)
        MPI_Finalize();
    else if (l->rank == 0)
        MPI_Abort(m->comm, exit_status);
    free(m);
    l->self = NULL;
}

static msp_link *
give_up(char *why, size_t size, const char *what)
{
    snprintf(why, size, "%s", what);
    return NULL;
}

/*
 * Join the processes that the launcher has started, and fill out. NULL: it cannot be done, and why says so in one line.
 */
EXPORT msp_link *msp_mpi_open(msp_link *out, char *why, size_t size);

msp_link *
msp_mpi_open(msp_link *out, char *why, size_t size)
{
    mpi_link *m = calloc(1, sizeof(*m));
    int provided;

    if (m == NULL)
        return give_up(why, size, "out of memory");
    *out = (msp_link){.version = MSP_LINK_VERSION, .self = m};
    m->sleep = FIRST_SLEEP;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        free(m);
        return give_up(why, size, "MPI_Init_thread failed");
    }
    if (MPI_Comm_dup(MPI_COMM_WORLD, &m->comm) != MPI_SUCCESS) {
        free(m);
        return give_up(why, size, "MPI_Comm_dup failed");
    }
    MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(m->comm, &out->rank);
    MPI_Comm_size(m->comm, &out->size);
    out->send = send_bytes;
    out->recv = recv_bytes;
    out->drop = drop_bytes;
    out->close = close_link;
    return out;
}
