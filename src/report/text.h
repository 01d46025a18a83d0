/* text.h - text of unknown origin in files that must be UTF-8: what is not becomes U+FFFD. */
#ifndef MSP_REPORT_TEXT_H
#define MSP_REPORT_TEXT_H

#include <stdint.h>
#include "core/str.h"

/*
 * The character at p, which must be before end, and in *len the bytes it takes; U+FFFD for a byte that is no part of
 * one.
 */
uint32_t msp_text_next(const char *p, const char *end, size_t *len);

/* Append s, bytes that are not UTF-8 as U+FFFD. */
void msp_text_add(msp_buf *b, msp_str s);

/* Append one character. */
void msp_text_put(msp_buf *b, uint32_t c);

#endif
