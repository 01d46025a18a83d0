/*
 * link.h - the processes that share the work of one command, and how they speak to each other.
 *
 * msp_compare_run() takes one in its options: process 0 hands out the pairs and gathers what came out, the others work.
 * The library knows no launcher and no MPI: whoever starts it brings the functions (the command those of src/mpi, tests
 * their own).
 */
#ifndef MSPROBE_LINK_H
#define MSPROBE_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include "msprobe/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MSP_LINK_VERSION = 1 };

typedef struct msp_link {
    int version;    /* MSP_LINK_VERSION of who filled this in */
    int rank, size; /* this process among all: 0 to size - 1 */
    void *self;

    /* Send n bytes, which may be used again when this returns. It never waits for the receiver. 0: sent. Called from
     * one thread at a time, as all of these. */
    int (*send)(struct msp_link *l, int to, const void *bytes, size_t n);

    /* The next message of anyone within so many milliseconds: 1. None came: 0. The link is broken: -1. *bytes goes back
     * by drop(). Messages of one sender come in their order. */
    int (*recv)(struct msp_link *l, int *from, void **bytes, size_t *n, int milliseconds);
    void (*drop)(struct msp_link *l, void *bytes);

    /* End it. together: all the others do so as well. Otherwise some are gone: this does not wait for them, and in
     * process 0 it ends the whole job with this exit status, whoever still runs. */
    void (*close)(struct msp_link *l, bool together, int exit_status);

    int silence; /* seconds without a word after which a process is taken for dead; 0: 60 */
} msp_link;

#ifdef __cplusplus
}
#endif
#endif
