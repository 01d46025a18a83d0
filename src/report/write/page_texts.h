/* page_texts.h - texts of a page, each once and known by its number. */
#ifndef MSP_REPORT_PAGE_TEXTS_H
#define MSP_REPORT_PAGE_TEXTS_H

#include "core/arena.h"
#include "core/map.h"

typedef struct msp_page_texts {
    msp_arena arena;
    msp_map map;  /* value: the text's number */
    size_t bytes; /* of all texts */
} msp_page_texts;

/* A text is kept up to so many bytes, never cut inside a character; what is too much in all is not kept, and its
 * number is 0, which the caller gives to the text that stands for all of them. False: out of memory. */
MSP_CHECK bool msp_page_texts_add(msp_page_texts *t, msp_str s, size_t most, uint32_t *id);

/* A JSON list of them, in the order of their numbers. */
void msp_page_texts_write(const msp_page_texts *t, msp_buf *out);

void msp_page_texts_release(msp_page_texts *t);

#endif
