/* talk.h - what leader and followers say to each other: a letter, then what the letter asks for. */
#ifndef MSP_COMPARE_TALK_H
#define MSP_COMPARE_TALK_H

#include "compare/share/share.h"

typedef enum msp_talk {
    TALK_HELLO = 'H', /* follower: what it is, as text that must be the leader's own */
    TALK_WANT = 'W',  /* follower: it will soon have nothing to do */
    TALK_RESULT = 'R',
    TALK_REFUSED = 'N', /* follower: a pair that cannot be compared where it runs */
    TALK_ALIVE = 'A',   /* both, every second */
    TALK_BYE = 'B', /* follower: its answer to the end; which names of a data mapping or rules of a layout it has met */
    TALK_SETUP = 'S', /* leader */
    TALK_PAIRS = 'P', /* leader: pairs to be compared */
    TALK_END = 'E'    /* leader */
} msp_talk;

enum { TALK_SILENCE = 60, TALK_PAIRS_AT_ONCE = 64 };

double msp_talk_now(void); /* seconds */
int msp_talk_silence(const msp_link *l);

/* Send the letter and what is behind it (may be NULL). False: it could not be sent. */
bool msp_talk_say(msp_link *l, int to, msp_talk what, const msp_buf *more);

/* Write what both must have in common to understand each other. */
enum { MSP_TALK_IDENTITY = 160 };
void msp_talk_identity(char text[MSP_TALK_IDENTITY]);

#endif
