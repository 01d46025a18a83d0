/* jsonout.h - just enough JSON for the summary: this room does not see the library's writer. */
#ifndef MSP_CLI_JSONOUT_H
#define MSP_CLI_JSONOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>

typedef struct msp_jsonout {
    FILE *out;
    int depth;
    bool first; /* nothing written at this level yet */
} msp_jsonout;

/* key is NULL inside arrays; text NULL gives null; NaN and infinities become strings, as JSON has none. */
void msp_jsonout_open(msp_jsonout *j, const char *key, char bracket);
void msp_jsonout_close(msp_jsonout *j, char bracket);
void msp_jsonout_text(msp_jsonout *j, const char *key, const char *text);
void msp_jsonout_int(msp_jsonout *j, const char *key, int64_t v);
void msp_jsonout_float(msp_jsonout *j, const char *key, double v);
void msp_jsonout_bool(msp_jsonout *j, const char *key, bool v);
void msp_jsonout_number(msp_jsonout *j, const char *key, int64_t n); /* MSP_DUMP_NO_NUMBER gives null */
void msp_jsonout_texts(msp_jsonout *j, const char *key, char *const *texts, size_t n);
void msp_jsonout_ints(msp_jsonout *j, const char *key, const int64_t *v, size_t n);

#endif
