/* words.c - which known word was probably meant. */
#include <stdio.h>
#include <string.h>
#include "cli.h"

enum { MAX_WORD = 48 }; /* longer than every option and command */

static size_t
min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;

    return m < c ? m : c;
}

/* Damerau-Levenshtein over three rows: "comapre" is one slip away from "compare", not two. */
size_t
msp_word_distance(const char *a, const char *b, size_t limit)
{
    size_t rows[3][MAX_WORD + 1];
    size_t na = strlen(a), nb = strlen(b);

    if (na > MAX_WORD || nb > MAX_WORD)
        return limit + 1;
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;

            now[j] = min3(up[j] + 1, now[j - 1] + 1, up[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < now[j])
                now[j] = up2[j - 2] + 1;
        }
    }
    return rows[na % 3][nb] <= limit ? rows[na % 3][nb] : limit + 1;
}

/* A third of the word may be wrong: more, and the guess would puzzle rather than help. */
void
msp_nearest_offer(msp_nearest *n, const char *candidate)
{
    size_t len = strlen(n->word);
    size_t limit = len < 4 ? 1 : len / 3;
    char start[MAX_WORD + 1];
    size_t d;

    if (len > strlen(candidate) + limit)
        return;
    d = msp_word_distance(n->word, candidate, limit);
    snprintf(start, sizeof(start), "%.*s", (int)len, candidate);
    if (d > limit && len >= 4 && msp_word_distance(n->word, start, 1) <= (len < 8 ? 0 : 1))
        d = limit; /* the start of a longer word, of eight letters with one slip */
    if (d <= limit && (n->best == NULL || d < n->distance)) {
        n->best = candidate;
        n->distance = d;
    }
}
