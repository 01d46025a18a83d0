/*
 * share.h - what a training process and its sender have in common: a page of counters, and a journal of steps.
 *
 * The page is anonymous memory (memfd) of the training process; the sender opens it through /proc and so finds it
 * without a name that somebody could plant or cut short. The journal is a file in the dump folder, one line per event,
 * so that a sender that is started anew knows all steps:
 *     begin <step> <folder>
 *     end
 */
#ifndef MSP_ONLINE_SHARE_H
#define MSP_ONLINE_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "online/wire.h"
#include "msprobe/online.h"

enum { MSP_SHARE_PATH = 4096, MSP_SHARE_TROUBLE = 512 };

typedef struct msp_share {
    char magic[8];
    /* set once, before the sender is started */
    char folder[MSP_SHARE_PATH], tls[MSP_SHARE_PATH], host[64], journal[MSP_SHARE_PATH], stamp[16];
    int32_t port, forward_only, wait_ms, linger_ms;
    uint64_t rank, limit;
    int64_t producer;
    uint64_t producer_start;
    /* the training process writes */
    _Atomic uint64_t left_out, waited_ms, longest_ms;
    _Atomic uint32_t closing; /* no more steps */
    /* both */
    _Atomic uint64_t bytes; /* of tensors in files */
    /* the sender writes */
    _Atomic int64_t sender;
    _Atomic uint64_t sender_start;
    _Atomic uint64_t on_the_way; /* bytes of complete calls: they will make room, if a checker is there */
    _Atomic uint64_t found, answered, not_sent, status[MSP_PRECHECK_ERROR + 1], connections, freed;
    _Atomic uint32_t state, trouble_lock;
    char trouble[MSP_SHARE_TROUBLE];
} msp_share;

#define MSP_SHARE_MAGIC "MSPONL\0\1" /* 8 bytes */

/* Is the process there that was started then? */
bool msp_share_lives(int64_t pid, uint64_t start);

/* The newest reason why nothing goes over; "" takes it back. Both sides see whole texts. */
void msp_share_tell(msp_share *s, const char *text);
void msp_share_trouble(msp_share *s, char out[MSP_SHARE_TROUBLE]);

/* host, port, folder and tls fit together. MSP_E_INVALID says what does not. */
MSP_CHECK msp_status msp_online_check_address(const msp_online_address *a, bool server, msp_error *err);

#endif
