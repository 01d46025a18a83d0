/* highlight.h - which rows of one call are red or yellow, and why: the manual's section 3.3. */
#ifndef MSP_COMPARE_HIGHLIGHT_H
#define MSP_COMPARE_HIGHLIGHT_H

#include "compare/judge/judged.h"

/*
 * Colour the n rows of one call, which stand together, and add each reason once to their messages, on a line of its
 * own. mode is real data or statistics.
 */
void msp_highlight_api(msp_judged *rows, size_t n, msp_compare_mode mode);

#endif
