/*
 * online.h - run_ut while the training runs: calls go to a checking process on another machine, verdicts come back.
 *
 * The training process records as with task tensor. A sender, a process of its own, follows the dump that grows: it
 * sends each call with its tensors to the checker as soon as it is complete, writes the verdicts into csv files beside
 * the dump, and removes the tensors' files. So the program waits for a network in one case only: when the files that
 * wait for being sent have reached their bound, and then no longer than msp_online_options.wait_ms in a step.
 *
 * Sender and checker meet over TCP (beyond this machine with TLS only, both sides verified), or in a shared folder. The
 * formats are in docs/online-protocol.md. Either side may die, or the connection; what is not answered is sent again.
 */
#ifndef MSPROBE_ONLINE_H
#define MSPROBE_ONLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "msprobe/precheck.h"
#include "msprobe/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the two meet. */
typedef struct msp_online_address {
    const char *folder; /* a shared folder; NULL: a connection */
    const char *host;   /* IPv4; the checker's own address on its side */
    int port;           /* on the checker's side 0 chooses a free one */
    const char *tls;    /* folder with <side>.key, <side>.crt and ca.crt; NULL: without, on this machine only */
} msp_online_address;

/* ---- the training process ---------------------------------------------------------------------------------------- */

typedef struct msp_online msp_online;

typedef struct msp_online_options {
    msp_online_address address;
    const char *dir;     /* dump_path: what is to be sent is noted there */
    const char *program; /* the msprobe command, which the sender is */
    uint64_t rank;
    uint64_t limit;    /* bytes of tensors that may wait on the disk */
    int wait_ms;       /* the most that the program waits in a step, and at the end */
    int linger_ms;     /* how long the sender goes on without an answer after the training has ended */
    bool forward_only; /* no gradients will be recorded: a call is complete without */
} msp_online_options;

/*
 * Check the address (files of keys and certificates with it) and start the sender. MSP_E_INVALID: the address or its
 * files are not as they must be. MSP_E_IO: the sender cannot be started.
 */
MSP_API MSP_CHECK msp_status msp_online_open(msp_online **out, const msp_online_options *opt, msp_error *err);

/*
 * May a tensor of n bytes be written to its file? Waits for room as far as the bound allows; false: it must be left
 * out, and is counted. Any thread; nothing else is called meanwhile, so let go of an interpreter's lock when
 * msp_online_has_room() says that it would wait.
 */
MSP_API bool msp_online_room(msp_online *o, uint64_t n);
MSP_API bool msp_online_has_room(const msp_online *o, uint64_t n);

/* Records of this step go to dir from here on; and: they are complete, and in the files. MSP_E_IO. */
MSP_API MSP_CHECK msp_status msp_online_step_begin(msp_online *o, const char *dir, uint64_t step, msp_error *err);
MSP_API MSP_CHECK msp_status msp_online_step_end(msp_online *o, msp_error *err);

typedef enum msp_online_state {
    MSP_ONLINE_CONNECTING = 0, /* no checker is there yet, or not any more */
    MSP_ONLINE_CONNECTED,
    MSP_ONLINE_REFUSED, /* for good: nothing more is sent */
    MSP_ONLINE_DONE     /* everything is answered or given up */
} msp_online_state;

typedef struct msp_online_counts {
    msp_online_state state;
    bool lives;                              /* the sender */
    uint64_t found, answered, not_sent;      /* calls; not_sent are part of neither of the two others */
    uint64_t status[MSP_PRECHECK_ERROR + 1]; /* of the answered ones */
    uint64_t left_out;                       /* tensors without room */
    uint64_t waited_ms, longest_ms;          /* in sum, and in the step that waited longest */
    uint64_t waiting_bytes;                  /* on the disk */
    uint64_t connections, starts;            /* made so far, and senders */
    int64_t sender;                          /* its process */
    char trouble[512];                       /* "" or the newest reason why nothing goes over */
} msp_online_counts;

MSP_API void msp_online_count(const msp_online *o, msp_online_counts *out);

/* Start another sender when there is none any more; a few times. */
MSP_API void msp_online_revive(msp_online *o);

/*
 * No more steps. Waits for the answers until the bound, takes the last counts (out may be NULL), and lets go; the
 * sender goes on by itself. In a child made by fork() it frees memory only. Accepts NULL.
 */
MSP_API void msp_online_close(msp_online *o, msp_online_counts *out);

/* What the sender runs; path is what msp_online_open() has given to it. */
MSP_API MSP_CHECK msp_status msp_online_send(const char *path, msp_error *err);

/* ---- a call on its way ------------------------------------------------------------------------------------------- */

/* Bytes that the call owns; not terminated. */
typedef struct msp_online_text {
    const char *p;
    size_t len;
} msp_online_text;

typedef struct msp_online_call {
    uint64_t number, step, rank;
    msp_online_text name;              /* "Functional.linear.0" */
    msp_online_text reason;            /* not empty: why it has no data */
    msp_online_text forward, backward; /* its records as they stand in dump.json; empty: none */
    size_t ntensors;
    struct msp_online_tensor *tensors;
    void *owner; /* internal */
} msp_online_call;

typedef struct msp_online_tensor {
    msp_online_text name; /* the data_name of a record */
    msp_tensor view;
} msp_online_tensor;

/*
 * Read a call from memory, which has to stay, or from a file. The name is one that may be part of a file's name.
 * Returns MSP_E_FORMAT for bytes that are none, MSP_E_NOMEM, MSP_E_IO, MSP_E_NOT_FOUND.
 */
MSP_API MSP_CHECK msp_status msp_online_call_parse(msp_online_call *out, const void *bytes, size_t size,
                                                   msp_error *err);
MSP_API MSP_CHECK msp_status msp_online_call_open(msp_online_call *out, const char *path, msp_error *err);
MSP_API void msp_online_call_release(msp_online_call *c);

/* ---- the checker ------------------------------------------------------------------------------------------------- */

typedef struct msp_online_server msp_online_server;

typedef struct msp_online_serving {
    msp_online_address address;
    const char *dir;       /* results: step<N>/accuracy_checking_{result,details}_<stamp>_rank<R>.csv */
    const char *stamp;     /* 14 digits */
    const uint64_t *ranks; /* which are checked */
    size_t nranks;
    uint64_t limit; /* bytes of calls that wait here; who sends waits then */
    int idle_ms;    /* without a sender it ends after this long; 0: never */
} msp_online_serving;

/* Begin to listen, in a thread. Errors as msp_online_open(). */
MSP_API MSP_CHECK msp_status msp_online_serve(msp_online_server **out, const msp_online_serving *opt, msp_error *err);

typedef struct msp_online_work {
    uint64_t id;
    char path[4096]; /* for msp_online_call_open() */
    char name[512];
} msp_online_work;

/*
 * The next call to check. MSP_E_NOT_FOUND: none within ms milliseconds; MSP_E_CANCELLED: all selected ranks have ended,
 * or nobody came for too long, and everything is answered. MSP_E_IO: results cannot be written.
 */
MSP_API MSP_CHECK msp_status msp_online_next(msp_online_server *s, msp_online_work *out, int ms, msp_error *err);

/* The verdict: lines as msp_precheck_result_line() and msp_precheck_details_line() make them. */
MSP_API MSP_CHECK msp_status msp_online_answer(msp_online_server *s, uint64_t id, msp_precheck_status status,
                                               const char *result, size_t result_len, const char *details,
                                               size_t details_len, msp_error *err);

typedef struct msp_online_served {
    int port;
    uint64_t connections, refused, calls, answered;
    uint64_t ended, lost; /* ranks that said so, and that went without a word and have not come back */
    bool idle;            /* it ended because nobody came */
} msp_online_served;

MSP_API void msp_online_server_count(msp_online_server *s, msp_online_served *out);

/* What a person should hear of (who was refused, and why), oldest first: one line, or false. */
MSP_API bool msp_online_server_news(msp_online_server *s, char line[512]);

/* Paths of the result files so far, in the order of step and rank: the i-th, or false. */
MSP_API bool msp_online_server_file(msp_online_server *s, size_t i, char result[4096], char details[4096]);

/* End it, and put the rows of unfinished steps in order. Accepts NULL. */
MSP_API void msp_online_server_close(msp_online_server *s);

#ifdef __cplusplus
}
#endif
#endif
