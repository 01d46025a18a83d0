/* talk.c - see talk.h. */
#include "compare/share/talk.h"

#include <stdio.h>
#include <time.h>
#include "core/alloc.h"

double
msp_talk_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int
msp_talk_silence(const msp_link *l)
{
    return l->silence > 0 ? l->silence : TALK_SILENCE;
}

bool
msp_talk_say(msp_link *l, int to, msp_talk what, const msp_buf *more)
{
    msp_buf b = {0};
    bool sent;

    msp_buf_char(&b, (char)what);
    if (more != NULL)
        msp_buf_str(&b, msp_buf_view(more));
    sent = !b.failed && l->send(l, to, b.p, b.len) == 0;
    msp_buf_release(&b);
    return sent;
}

void
msp_talk_identity(char text[MSP_TALK_IDENTITY])
{
    /* sizes tell builds apart whose messages would differ */
    snprintf(text, MSP_TALK_IDENTITY, "msprobe %zu %zu %zu %zu %zu %zu", sizeof(msp_compare_pair),
             sizeof(msp_compare_answer), sizeof(msp_compare_suspect), sizeof(msp_pair_verdict), sizeof(msp_page_rest),
             sizeof(msp_job_spot));
}
