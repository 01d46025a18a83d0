/*
 * sequence.h - what two sequences have in common, in order: the longest common subsequence, by Myers' algorithm in its
 * form with linear memory. Items are told apart by a number.
 */
#ifndef MSP_COMPARE_SEQUENCE_H
#define MSP_COMPARE_SEQUENCE_H

#include "compare/match/match.h"

typedef struct msp_sequence {
    const uint32_t *keys;
    size_t count;
} msp_sequence;

/* Room for any number of comparisons. A zeroed one is empty; release accepts that. */
typedef struct msp_sequence_room {
    int64_t *ahead, *back;
    uint32_t *kept[2], *places[2];
    uint8_t *there;
    size_t room, nkeys;
} msp_sequence_room;

/* For sequences of items keys < nkeys that are no longer than most. False: no memory. */
MSP_CHECK bool msp_sequence_room_init(msp_sequence_room *r, size_t most, size_t nkeys);
void msp_sequence_room_release(msp_sequence_room *r);

/*
 * partner[i] becomes the item of b that item i of a stands for, or MATCH_NONE. Time grows with the lengths and the
 * square of the differences, but never beyond 1024 steps an item: of sequences that have more differences than that
 * (more than about ten thousand in a hundred thousand items) the middle parts stay without partners, and false comes
 * back.
 */
bool msp_sequence_align(uint32_t *partner, const msp_sequence *a, const msp_sequence *b, msp_sequence_room *r);

#endif
