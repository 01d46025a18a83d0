/* terminal.c - colours, widths and text that is safe to show. */
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "terminal.h"

static bool colour_out, colour_err;

static bool
env_is_set(const char *name)
{
    const char *v = getenv(name);

    return v != NULL && v[0] != '\0';
}

/* https://no-color.org and https://bixense.com/clicolors: NO_COLOR wins over everything that is not on the line. */
static bool
wants_colour(FILE *stream, bool forbidden)
{
    const char *force = getenv("CLICOLOR_FORCE"), *clicolor = getenv("CLICOLOR"), *term = getenv("TERM");

    if (forbidden || env_is_set("NO_COLOR"))
        return false;
    if (force != NULL && force[0] != '\0' && strcmp(force, "0") != 0)
        return true;
    if (clicolor != NULL && strcmp(clicolor, "0") == 0)
        return false;
    return msp_term_is_tty(stream) && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

void
msp_term_init(bool forbidden)
{
    colour_out = wants_colour(stdout, forbidden);
    colour_err = wants_colour(stderr, forbidden);
}

bool
msp_term_is_tty(FILE *stream)
{
    return isatty(fileno(stream)) == 1;
}

int
msp_term_width(FILE *stream)
{
    struct winsize size;
    int width = 80;

    if (msp_term_is_tty(stream) && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        width = size.ws_col;
    return width < 40 ? 40 : width;
}

const char *
msp_term_on(FILE *stream, msp_style style)
{
    static const char *const codes[] = {"", "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[33m", "\033[36m"};

    return (stream == stderr ? colour_err : colour_out) ? codes[style] : "";
}

const char *
msp_term_off(FILE *stream)
{
    return (stream == stderr ? colour_err : colour_out) ? "\033[0m" : "";
}

void
msp_term_put(FILE *stream, msp_style style, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    if (style != MSP_STYLE_PLAIN)
        fputs(msp_term_on(stream, style), stream);
    vfprintf(stream, fmt, args);
    if (style != MSP_STYLE_PLAIN)
        fputs(msp_term_off(stream), stream);
    va_end(args);
}

/* ---- characters ---------------------------------------------------------------------------------------------- */

/* The character at p and its length in bytes; a byte that begins none is itself, with length 1 and *ok false. */
static uint32_t
decode_char(const unsigned char *p, size_t left, size_t *len, bool *ok)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    uint32_t c = n == 1 ? p[0] : n == 0 ? 0 : p[0] & (0x7fU >> n);

    *len = 1;
    *ok = false;
    if (n == 0 || n > left || (p[0] >= 0x80 && p[0] < 0xc2))
        return p[0];
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return p[0];
        c = (c << 6) | (p[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return p[0];
    *len = n;
    *ok = true;
    return c;
}

typedef struct range {
    uint32_t first, last;
} range;

static bool
in_ranges(uint32_t c, const range *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c >= r[i].first && c <= r[i].last)
            return true;
    return false;
}

/* Own tables, not wcwidth(): that one knows nothing in the C locale, where files have Chinese names all the same. */
static size_t
char_width(uint32_t c)
{
    static const range marks[] = {{0x300, 0x36f},   {0x483, 0x489},    {0x591, 0x5bd},   {0x610, 0x61a},
                                  {0x64b, 0x65f},   {0x1ab0, 0x1aff},  {0x1dc0, 0x1dff}, {0x200b, 0x200f},
                                  {0x20d0, 0x20ff}, {0x3099, 0x309a},  {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
                                  {0xfeff, 0xfeff}, {0xe0100, 0xe01ef}};
    static const range wide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0x33ff},   {0x3400, 0x4dbf},
                                 {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},
                                 {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
                                 {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};

    if (c < 0x300)
        return 1;
    if (in_ranges(c, marks, sizeof(marks) / sizeof(marks[0])))
        return 0;
    return in_ranges(c, wide, sizeof(wide) / sizeof(wide[0])) ? 2 : 1;
}

size_t
msp_text_char(const char *text, size_t left, bool *ok)
{
    size_t n;

    decode_char((const unsigned char *)text, left, &n, ok);
    return n;
}

size_t
msp_text_width(const char *text, size_t len)
{
    size_t width = 0;

    for (size_t i = 0; i < len;) {
        size_t n;
        bool ok;
        uint32_t c = decode_char((const unsigned char *)text + i, len - i, &n, &ok);

        width += ok ? char_width(c) : 1;
        i += n;
    }
    return width;
}

size_t
msp_text_fit(const char *text, size_t len, size_t columns)
{
    size_t width = 0, i = 0;

    while (i < len) {
        size_t n, w;
        bool ok;
        uint32_t c = decode_char((const unsigned char *)text + i, len - i, &n, &ok);

        w = ok ? char_width(c) : 1;
        if (width + w > columns)
            break;
        width += w;
        i += n;
    }
    return i;
}

/* Control characters of both blocks, and the marks that reorder text on the screen. */
static bool
is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ||
           c == 0x200e || c == 0x200f || c == 0x2028 || c == 0x2029;
}

const char *
msp_text_safe(char *buf, size_t size, const char *text)
{
    size_t len = strlen(text), used = 0;

    for (size_t i = 0; i < len;) {
        size_t n;
        bool ok;
        uint32_t c = decode_char((const unsigned char *)text + i, len - i, &n, &ok);
        bool keep = ok && !is_unsafe(c);
        size_t need = keep ? n : 1;

        if (used + need >= size)
            break;
        if (keep)
            memcpy(buf + used, text + i, n);
        else
            buf[used] = '?';
        used += need;
        i += n;
    }
    buf[used] = '\0';
    return buf;
}

void
msp_text_wrap(FILE *stream, const char *text, int indent, int width)
{
    size_t room = width > indent + 20 ? (size_t)(width - indent) : 20, column = 0;

    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        size_t w = msp_text_width(text, n);

        if (column > 0 && column + 1 + w > room) {
            fprintf(stream, "\n%*s", indent, "");
            column = 0;
        }
        fprintf(stream, "%s%.*s", column > 0 ? " " : "", (int)n, text);
        column += (column > 0) + w;
        text += n + strspn(text + n, " ");
    }
    fputc('\n', stream);
}
