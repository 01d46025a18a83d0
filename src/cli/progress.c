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
seconds_now(void)
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

/* The work beside reading JSON: bytes of tensor files where there are any, for rows without files take no time. */
static void
work_of(const msp_progress_state *s, double *done, double *total)
{
    bool files = s->total_bytes > s->total_json;

    *done = (double)(files ? s->bytes - s->json : s->rows);
    *total = (double)(files ? s->total_bytes - s->total_json : s->total_rows);
    if (s->known_json > 0)
        *total *= (double)s->total_json / (double)s->known_json;
    if (*done > *total)
        *done = *total;
}

double
msp_progress_left(const msp_progress_state *s, double reading, double working)
{
    double json_left = (double)(s->total_json - s->json), done, total, left = 0;

    work_of(s, &done, &total);
    if (json_left > 0 && s->json <= 0)
        return -1;
    if (json_left > 0)
        left = reading * json_left / (double)s->json;
    if (done > 0)
        return left + working * (total - done) / done;
    if (s->json <= 0)
        return -1;
    /* not begun, and tensors have not told yet */
    return left + (s->row_cost > 0 ? s->row_cost : 1) * reading * (double)s->total_json / (double)s->json;
}

static void
append_text(char *buf, size_t size, const char *text)
{
    size_t len = strlen(buf);

    snprintf(buf + len, size - len, "%s", text);
}

void
msp_progress_format(char *buf, size_t size, const msp_progress_state *s, double seconds, double left)
{
    char a[32], b[32], part[96];

    buf[0] = '\0';
    if (s->what != NULL) {
        msp_text_safe(part, sizeof(part) / 2, s->what);
        append_text(buf, size, part);
        append_text(buf, size, "  ");
    }
    if (s->total_rows > 0)
        snprintf(part, sizeof(part), "%s of %s rows", msp_format_count(a, s->rows), msp_format_count(b, s->total_rows));
    else
        snprintf(part, sizeof(part), "%s rows", msp_format_count(a, s->rows));
    append_text(buf, size, part);
    if (s->bytes > 0 && seconds > 0) {
        snprintf(part, sizeof(part), "  %s/s", msp_format_bytes(a, (double)s->bytes / seconds));
        append_text(buf, size, part);
    }
    if (left >= 0) {
        snprintf(part, sizeof(part), "  %s left", msp_format_seconds(a, left));
        append_text(buf, size, part);
    }
}

void
msp_progress_start(msp_progress *p, FILE *stream, bool quiet)
{
    *p = (msp_progress){.stream = stream, .shown = !quiet && msp_term_is_tty(stream)};
    p->started = p->updated = seconds_now();
    p->painted = p->started - PAINT_EVERY + FIRST_PAINT;
}

void
msp_progress_update(msp_progress *p, const msp_progress_state *s)
{
    char line[256];
    double t;

    if (!p->shown)
        return;
    t = seconds_now();
    *(s->is_reading ? &p->reading : &p->working) += t - p->updated;
    p->updated = t;
    if (t - p->painted < PAINT_EVERY)
        return;
    p->painted = t;
    msp_progress_format(line, sizeof(line), s, t - p->started, msp_progress_left(s, p->reading, p->working));
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
