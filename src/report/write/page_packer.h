/* page_packer.h - rows of a table as blocks of a page: gathered a chunk at a time, packed column by column. */
#ifndef MSP_REPORT_PAGE_PACKER_H
#define MSP_REPORT_PAGE_PACKER_H

#include "report/write/page_columns.h"
#include "report/write/page_texts.h"

enum {
    PAGE_CHUNK = 8192,     /* rows: what a browser unpacks to show one of them, some 200 KB */
    PAGE_MAX_COLUMNS = 64, /* of a table; further ones are left out */
    PAGE_MAX_TEXT = 512    /* bytes of a text that is kept; names of calls are kept whole */
};

typedef struct msp_page_packer {
    msp_page_roles roles;
    size_t kept[PAGE_MAX_COLUMNS], nkept; /* columns that are in the page */
    bool percent[PAGE_MAX_COLUMNS];       /* cells that end in %: the number alone is kept */
    struct msp_page_guess {
        char kind;    /* 0: none; see page.h */
        int8_t of[2]; /* columns of the page */
    } guess[PAGE_MAX_COLUMNS];
    msp_buf titles;       /* JSON */
    msp_page_texts texts; /* of cells, and of rows' names behind the call's */

    /* the chunk that is being filled */
    size_t filled;
    uint32_t *call, *name;
    double *values; /* nkept columns of PAGE_CHUNK */
    uint8_t *is_text;
    double *guessed; /* a column's values against what others let expect */
} msp_page_packer;

/* False: out of memory; to be released in any case. */
MSP_CHECK bool msp_page_packer_init(msp_page_packer *p, const msp_column *columns, size_t n);

/* Cells of a row of this call; rest is its name behind the call's. False: out of memory. */
MSP_CHECK bool msp_page_packer_add_row(msp_page_packer *p, uint32_t call, msp_str rest, const msp_cell *cells);

/* Append the bytes of a block with the rows of the chunk, which is empty then. */
void msp_page_packer_pack(msp_page_packer *p, msp_buf *out);

void msp_page_packer_write_percent(const msp_page_packer *p, msp_buf *out);

void msp_page_packer_release(msp_page_packer *p);

#endif
