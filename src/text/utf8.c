/* utf8.c - see utf8.h. */
#include "text/utf8.h"

#include <string.h>

int
msp_utf8_decode(uint32_t *out, const char *p, size_t n)
{
    const unsigned char *s = (const unsigned char *)p;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = s[0];
    int len;

    if (c < 0x80) {
        *out = c;
        return 1;
    }
    len = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (c < 0xC2 || c > 0xF4)
        return 0;
    c &= 0x7Fu >> len;
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return -1;
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3F);
    }
    if (c < smallest[len] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    *out = c;
    return len;
}

int
msp_utf8_encode(char *p, uint32_t c)
{
    if (c >= 0xD800 && c <= 0xDFFF)
        c = MSP_UTF8_REPLACEMENT;
    if (c < 0x80) {
        p[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        p[0] = (char)(0xC0 | c >> 6);
        p[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        p[0] = (char)(0xE0 | c >> 12);
        p[1] = (char)(0x80 | (c >> 6 & 0x3F));
        p[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    p[0] = (char)(0xF0 | c >> 18);
    p[1] = (char)(0x80 | (c >> 12 & 0x3F));
    p[2] = (char)(0x80 | (c >> 6 & 0x3F));
    p[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

size_t
msp_utf8_bom(const char *text, size_t size)
{
    return size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

void
msp_utf8_locate(const char *text, size_t offset, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = msp_utf8_bom(text, offset); i < offset; i++) {
        if (text[i] == '\n') {
            (*line)++;
            *column = 1;
        } else {
            *column += ((unsigned char)text[i] & 0xC0) != 0x80; /* not for the later bytes of a character */
        }
    }
}
