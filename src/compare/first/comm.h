/*
 * comm.h - a communication call: what it does, whom it speaks to, and so which calls of other ranks belong to it.
 *
 * Everything is read from the call's name and its plain arguments (group, src, dst, the peers of P2POps).
 */
#ifndef MSP_COMPARE_COMM_H
#define MSP_COMPARE_COMM_H

#include <stdbool.h>
#include <stdint.h>
#include "core/arena.h"
#include "core/str.h"

/* Data flows from the sources to the destinations; links give and take. */
typedef enum msp_comm_type { MSP_COMM_LINK, MSP_COMM_SRC, MSP_COMM_DST } msp_comm_type;

typedef struct msp_comm_call {
    msp_str api, direction; /* "all_reduce", "forward": views into the call's name */
    msp_comm_type type;
    bool point_to_point;  /* a batch of messages: peers are each message's, and the partner's list is another one */
    const int64_t *peers; /* ranks on the other side, sorted, each once; npeers 0: all */
    size_t npeers;
    uint64_t hash; /* of peers */
} msp_comm_call;

enum { MSP_COMM_KNOWN = 8 };

/*
 * What the rows of a communication call say about its partners; zeroed is empty. It serves for all calls of a rank,
 * whose groups are few: of those that came last it keeps the lists, so that calls share them.
 */
typedef struct msp_comm_peers {
    struct {
        const int64_t *p;
        size_t n;
        uint64_t hash;
    } known[MSP_COMM_KNOWN];
    size_t next_known;
    bool has_src, has_dst, in_group; /* in_group: src or dst counts inside the group */
    int64_t value;
    int64_t *group, *p2p;
    size_t ngroup, group_cap, np2p, p2p_cap;
} msp_comm_peers;

/* One input row of a communication call. */
typedef struct msp_comm_arg {
    msp_str call, name; /* of the call and of the row */
    bool is_checksum;   /* its value is the checksum of what was passed */
    bool is_number;
    int64_t number;
    msp_str text;     /* the value, where it is no number */
    msp_str p2p_peer; /* of a P2POp; empty: it is none */
} msp_comm_arg;

/* FNV-1a over ranks: two groups of one rank are told apart, and all members of a group agree on it. */
uint64_t msp_comm_hash(const int64_t *ranks, size_t n);

/* Is a record with this name a communication call? */
bool msp_comm_is(msp_str name);

/* The part of a dotted name, counted from its end: 0 is the last. Empty when there are fewer. */
msp_str msp_comm_part(msp_str name, size_t n);

void msp_comm_peers_reset(msp_comm_peers *p);
void msp_comm_peers_release(msp_comm_peers *p);

/* Learn from an input row. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_comm_note(msp_comm_peers *p, const msp_comm_arg *arg, msp_error *err);

/*
 * All rows of the call are in. name is the call's and must outlive *out, as must the arena; rank is the one that calls.
 * MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_comm_finish(msp_comm_call *out, msp_comm_peers *p, msp_str name, int64_t rank,
                                     msp_arena *arena, msp_error *err);

#endif
