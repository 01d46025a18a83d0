/*
 * alike.h - records that are written like an earlier one become rows without a tree.
 *
 * The same calls come again and again, and the texts of their records differ in statistics, types, shapes, numbers and
 * names of files alone. Where these stand is noted while a record's tree becomes rows: that record is a model from then
 * on. One that has the same text around them, byte for byte, and other values in their places becomes the same rows
 * with other values. Whatever else may be different is left to the tree, errors included.
 */
#ifndef MSP_COMPARE_ALIKE_H
#define MSP_COMPARE_ALIKE_H

#include "compare/rows/rows.h"

/* A text as it stands in the file, and the id of what it stands for: types and shapes come again and again. */
typedef struct msp_recent {
    msp_str raw;
    uint32_t id;
} msp_recent;

enum { RECENT = 256 };

/* Where a text would be that was met a short time ago; raw is not empty. */
static inline msp_recent *
msp_recent_of(msp_recent *all, msp_str raw)
{
    const unsigned char *p = (const unsigned char *)raw.p;

    return &all[(raw.len + p[0] + 3u * p[raw.len / 4] + 31u * p[raw.len / 2] + 7u * p[raw.len - 1]) % RECENT];
}

/* What may be different. Numbers below MSP_NSTATS are the statistics. */
typedef enum msp_alike_part {
    ALIKE_DTYPE = MSP_NSTATS, /* text between quotes */
    ALIKE_SHAPE,              /* between brackets: from the first number to the last */
    ALIKE_VALUE,              /* a whole number that is all there is */
    ALIKE_FILE,
    ALIKE_MD5
} msp_alike_part;

typedef struct msp_alike_place {
    const char *p;
    uint32_t len;
    uint16_t row; /* of the record */
    uint8_t part; /* msp_alike_part */
} msp_alike_place;

enum { ALIKE_PLACES = 128, ALIKE_MODELS = 256 };

typedef struct msp_alike_model {
    msp_str text;        /* of the whole record */
    int how;             /* it was walked: see msp_alike_learn() */
    size_t name_len;     /* of the call's name */
    size_t first, count; /* its rows; none: there is no model here */
    size_t nplaces;
    msp_alike_place places[ALIKE_PLACES]; /* in the order of the text */
} msp_alike_model;

/* Zeroed, it knows nothing yet. Texts are those of the file, which must stay. */
typedef struct msp_alike {
    msp_recent dtypes[RECENT], shapes[RECENT];
    msp_alike_model models[ALIKE_MODELS];
    msp_alike_place places[ALIKE_PLACES]; /* noted since the last record */
    size_t nplaces;                       /* more than there is room for: that record will be no model */
} msp_alike;

/*
 * Add the rows of the record at text, a call of this name, if a record of the same name (its digits aside) is
 * a model for it.
 * False: nothing was added.
 */
bool msp_alike_read(msp_alike *a, msp_rows *rows, uint32_t api, int how, msp_str text);

/* The part of the row that is being made stands here in the file. */
void msp_alike_note(msp_alike *a, size_t row, msp_alike_part part, msp_str text);

/*
 * All rows of the record are there: a later one may be read like it that is to be walked in the same way. What names of
 * calls say beyond beginning the names of rows must be in how.
 */
void msp_alike_learn(msp_alike *a, const msp_rows *rows, uint32_t api, int how, msp_str text);

#endif
