/* utf8.h - UTF-8: one character at a time, and where in a text a byte is. */
#ifndef MSP_JSON_UTF8_H
#define MSP_JSON_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { MSP_UTF8_REPLACEMENT = 0xFFFD };

/*
 * Decode the character at p, of at most n bytes (n > 0), and return its length: 1 to 4. Returns 0 when it is not UTF-8:
 * overlong forms, surrogates and numbers past U+10FFFF are not; and -1 when the n bytes are the beginning of one.
 */
int msp_utf8_decode(uint32_t *out, const char *p, size_t n);

/* Write a character and return how many bytes it took: 1 to 4. A surrogate is written as U+FFFD. */
int msp_utf8_encode(char *p, uint32_t c);

/*
 * The 1-based line and column of a byte of a text, for messages. Columns count characters; a byte order mark is none.
 */
void msp_utf8_locate(const char *text, size_t offset, size_t *line, size_t *column);

/* Bytes of the byte order mark that the text begins with: 3 or 0. */
size_t msp_utf8_bom(const char *text, size_t size);

#endif
