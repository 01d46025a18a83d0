/* text.c - see text.h. */
#include "report/text.h"

#include "core/eight.h"
#include "text/utf8.h"

uint32_t
msp_text_next(const char *p, const char *end, size_t *len)
{
    uint32_t c;
    int n = msp_utf8_decode(&c, p, (size_t)(end - p));

    *len = n > 0 ? (size_t)n : 1;
    return n > 0 ? c : MSP_UTF8_REPLACEMENT;
}

/* How many bytes of s from `at` on are valid. */
static size_t
valid_run(msp_str s, size_t at)
{
    size_t start = at;

    while (at < s.len) {
        uint32_t c;
        int n;

        if (s.len - at >= 8 && (msp_load8(s.p + at) & MSP_EACH_BYTE(0x80)) == 0) { /* most text is ASCII */
            at += 8;
            continue;
        }
        n = (unsigned char)s.p[at] < 0x80 ? 1 : msp_utf8_decode(&c, s.p + at, s.len - at);

        if (n <= 0)
            break;
        at += (size_t)n;
    }
    return at - start;
}

void
msp_text_add(msp_buf *b, msp_str s)
{
    size_t at = 0;

    while (at < s.len) {
        size_t n = valid_run(s, at);

        msp_buf_add(b, s.p + at, n);
        at += n;
        if (at < s.len) {
            msp_text_put(b, MSP_UTF8_REPLACEMENT);
            at++;
        }
    }
}

void
msp_text_put(msp_buf *b, uint32_t c)
{
    char bytes[4];

    msp_buf_add(b, bytes, (size_t)msp_utf8_encode(bytes, c));
}
