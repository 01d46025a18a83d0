/* progress.c - one line on a terminal that says how far the work is. */
#include <string.h>
#include <time.h>
#include "progress.h"
#include "terminal.h"

/* Ten times a second is smooth to the eye and costs nothing. */
static const double PAINT_EVERY = 0.1;
/* Work that ends sooner shows no line at all: it would only flicker. */
static const double FIRST_PAINT = 0.3;

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *
msp_format_count(char *buf, int64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%lld", (long long)n);
    char *out = buf;

    for (int i = 0; i < len; i++) {
        *out++ = digits[i];
        if (digits[i] != '-' && i + 1 < len && (len - i - 1) % 3 == 0)
            *out++ = ',';
    }
    *out = '\0';
    return buf;
}

const char *
msp_format_bytes(char *buf, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t u = 0;

    while (bytes >= 999.5 && u + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1000;
        u++;
    }
    snprintf(buf, 32, u > 0 && bytes < 9.95 ? "%.1f %s" : "%.0f %s", bytes, units[u]);
    return buf;
}

const char *
msp_format_seconds(char *buf, double seconds)
{
    long s = seconds < 0 || seconds > 3.6e6 ? 3600000 : (long)(seconds + 0.5);

    if (s >= 3600)
        snprintf(buf, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, 32, "%ld:%02ld", s / 60, s % 60);
    return buf;
}

/*
 * Bytes are the honest share to extrapolate from, for rows without files take no time; but where all is read before the
 * first row, as with statistics, the rows are what is left.
 */
static double
share_done(const msp_progress_state *s)
{
    double bytes = s->total_bytes > 0 ? (double)s->bytes / (double)s->total_bytes : 1;
    double rows = s->total_rows > 0 ? (double)s->rows / (double)s->total_rows : 0;

    if (bytes < 0.99)
        return bytes;
    return s->total_rows > 0 || s->total_bytes <= 0 ? rows : bytes;
}

static void
append(char *buf, size_t size, const char *text)
{
    size_t len = strlen(buf);

    snprintf(buf + len, size - len, "%s", text);
}

void
msp_progress_format(char *buf, size_t size, const msp_progress_state *s, double seconds)
{
    char a[32], b[32], part[96];
    double share = share_done(s);

    buf[0] = '\0';
    if (s->what != NULL) {
        msp_text_safe(part, sizeof(part) / 2, s->what);
        append(buf, size, part);
        append(buf, size, "  ");
    }
    if (s->total_rows > 0)
        snprintf(part, sizeof(part), "%s of %s rows", msp_format_count(a, s->rows), msp_format_count(b, s->total_rows));
    else
        snprintf(part, sizeof(part), "%s rows", msp_format_count(a, s->rows));
    append(buf, size, part);
    if (s->bytes > 0 && seconds > 0) {
        snprintf(part, sizeof(part), "  %s/s", msp_format_bytes(a, (double)s->bytes / seconds));
        append(buf, size, part);
    }
    if (share > 0 && share < 1) {
        snprintf(part, sizeof(part), "  %s left", msp_format_seconds(a, seconds * (1 - share) / share));
        append(buf, size, part);
    }
}

void
msp_progress_start(msp_progress *p, FILE *stream, bool quiet)
{
    *p = (msp_progress){.stream = stream, .shown = !quiet && msp_term_is_tty(stream)};
    p->started = now();
    p->painted = p->started - PAINT_EVERY + FIRST_PAINT;
}

void
msp_progress_update(msp_progress *p, const msp_progress_state *s)
{
    char line[256];
    double t;

    if (!p->shown)
        return;
    t = now();
    if (t - p->painted < PAINT_EVERY)
        return;
    p->painted = t;
    msp_progress_format(line, sizeof(line), s, t - p->started);
    line[msp_text_fit(line, strlen(line), (size_t)msp_term_width(p->stream) - 1)] = '\0';
    /* back to the first column and over the old text; the rest of the old line is erased */
    fprintf(p->stream, "\r%s%s%s\033[K", msp_term_on(p->stream, MSP_STYLE_DIM), line, msp_term_off(p->stream));
    fflush(p->stream);
    p->dirty = true;
}

void
msp_progress_clear(msp_progress *p)
{
    if (!p->dirty)
        return;
    fputs("\r\033[K", p->stream);
    fflush(p->stream);
    p->dirty = false;
}
