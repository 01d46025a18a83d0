/*
 * follow.h - a dump while it grows, as calls that are complete.
 *
 * The journal (share.h) says which folders there are. Their dump.json is read again when it has changed: it is valid at
 * every moment, and records that were seen stay as they are. A call is complete with its backward record, or without
 * one when nothing in it asks for gradients, when none are recorded, or when its step is over.
 *
 * A call's number is made of its step's place in the journal and its own place in the dump. A sender that was started
 * anew takes over the rows that are written already, and gives numbers of its own under a job of its own.
 */
#ifndef MSP_ONLINE_FOLLOW_H
#define MSP_ONLINE_FOLLOW_H

#include "core/arena.h"
#include "core/map.h"
#include "online/results.h"
#include "online/share.h"

typedef enum msp_sent_state { MSP_CALL_HELD = 0, MSP_CALL_READY, MSP_CALL_SENT, MSP_CALL_DONE } msp_sent_state;

/* A call of the program's. */
typedef struct msp_sent {
    msp_sent_state state;
    uint64_t number, bytes; /* bytes of its tensors */
    msp_str name;
    char *forward, *backward; /* records, msp_free(); NULL: none */
    size_t forward_len, backward_len;
    msp_str *files; /* names in the folder dump_tensor_data; text in names */
    size_t nfiles, files_cap;
    char **names;
    char *lacks; /* NULL, or why it cannot be checked */
} msp_sent;

typedef struct msp_unit_calls {
    uint64_t serial, step;
    char *dir;
    bool over, read_last;                     /* no more records; and they have been looked at since */
    int64_t seen_inode, seen_size, seen_time; /* of dump.json at the last look */
    msp_map records;                          /* names that were seen */
    msp_map calls;                            /* name -> index */
    msp_sent **list;
    size_t count, cap, done;
    msp_arena names;
    msp_results results;
} msp_unit_calls;

typedef struct msp_follow {
    msp_share *share;
    int journal;
    msp_buf rest; /* of the journal: the beginning of a line */
    msp_unit_calls **units;
    size_t nunits, cap;
    uint64_t serials;
} msp_follow;

MSP_CHECK msp_status msp_follow_open(msp_follow *out, msp_share *share, msp_error *err);
void msp_follow_close(msp_follow *f);

/* Look for steps, records, and calls that have become complete. all: nobody records any more. */
MSP_CHECK msp_status msp_follow_look(msp_follow *f, bool all, msp_error *err);

/* The first call in this state, in the order of their numbers, from *unit on; NULL: none. */
msp_sent *msp_follow_first(const msp_follow *f, msp_sent_state state, msp_unit_calls **unit);

/* The call with this number, or NULL: it is done and forgotten, or there never was one. */
msp_sent *msp_follow_find(const msp_follow *f, uint64_t number, msp_unit_calls **unit);

/* A row for the call; its files are removed, and it is done. */
MSP_CHECK msp_status msp_follow_done(msp_follow *f, msp_unit_calls *u, msp_sent *call, msp_str result, msp_str details,
                                     msp_error *err);

/* Put the rows of a step in order when it is over and all of it is done; true, and *step: there was one. */
bool msp_follow_finish(msp_follow *f, uint64_t *step, msp_status *st, msp_error *err);

#endif
