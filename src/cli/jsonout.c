/* jsonout.c - just enough JSON for the summary. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "jsonout.h"
#include "msprobe/dump.h"
#include "terminal.h"

static void
put_char(FILE *out, const char *p, size_t n, bool ok)
{
    if (!ok)
        fputs("\\ufffd", out); /* file names need not be UTF-8, JSON must */
    else if (*p == '"' || *p == '\\')
        fprintf(out, "\\%c", *p);
    else if ((unsigned char)*p < 0x20 || *p == 0x7f)
        fprintf(out, "\\u%04x", (unsigned)*p);
    else
        fwrite(p, 1, n, out);
}

static void
put_string(FILE *out, const char *text)
{
    size_t left = strlen(text);

    fputc('"', out);
    while (left > 0) {
        bool ok;
        size_t n = msp_text_char(text, left, &ok);

        put_char(out, text, n, ok);
        text += n;
        left -= n;
    }
    fputc('"', out);
}

/* The comma, line and key that come before a value. */
static void
begin_value(msp_jsonout *j, const char *key)
{
    if (j->depth > 0)
        fprintf(j->out, "%s\n%*s", j->first ? "" : ",", 2 * j->depth, "");
    j->first = false;
    if (key != NULL) {
        put_string(j->out, key);
        fputs(": ", j->out);
    }
}

void
msp_jsonout_open(msp_jsonout *j, const char *key, char bracket)
{
    begin_value(j, key);
    fputc(bracket, j->out);
    j->depth++;
    j->first = true;
}

void
msp_jsonout_close(msp_jsonout *j, char bracket)
{
    j->depth--;
    if (!j->first)
        fprintf(j->out, "\n%*s", 2 * j->depth, "");
    fputc(bracket, j->out);
    j->first = false;
    if (j->depth == 0)
        fputc('\n', j->out);
}

void
msp_jsonout_text(msp_jsonout *j, const char *key, const char *text)
{
    begin_value(j, key);
    if (text == NULL)
        fputs("null", j->out);
    else
        put_string(j->out, text);
}

void
msp_jsonout_int(msp_jsonout *j, const char *key, int64_t v)
{
    begin_value(j, key);
    fprintf(j->out, "%lld", (long long)v);
}

void
msp_jsonout_float(msp_jsonout *j, const char *key, double v)
{
    char text[32];
    int digits = 15;

    begin_value(j, key);
    if (!isfinite(v)) {
        fputs(isnan(v) ? "\"nan\"" : v > 0 ? "\"inf\"" : "\"-inf\"", j->out);
        return;
    }
    do /* the fewest digits that read back the same */
        snprintf(text, sizeof(text), "%.*g", digits, v);
    while (digits++ < 17 && strtod(text, NULL) != v);
    fputs(text, j->out);
}

void
msp_jsonout_bool(msp_jsonout *j, const char *key, bool v)
{
    begin_value(j, key);
    fputs(v ? "true" : "false", j->out);
}

void
msp_jsonout_number(msp_jsonout *j, const char *key, int64_t n)
{
    if (n == MSP_DUMP_NO_NUMBER)
        msp_jsonout_text(j, key, NULL);
    else
        msp_jsonout_int(j, key, n);
}

void
msp_jsonout_texts(msp_jsonout *j, const char *key, char *const *texts, size_t n)
{
    msp_jsonout_open(j, key, '[');
    for (size_t i = 0; i < n; i++)
        msp_jsonout_text(j, NULL, texts[i]);
    msp_jsonout_close(j, ']');
}

void
msp_jsonout_ints(msp_jsonout *j, const char *key, const int64_t *v, size_t n)
{
    msp_jsonout_open(j, key, '[');
    for (size_t i = 0; i < n; i++)
        msp_jsonout_int(j, NULL, v[i]);
    msp_jsonout_close(j, ']');
}
