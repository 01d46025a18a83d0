/* page_columns.h - what the columns of a result table, known by their titles, tell the page about a row. */
#ifndef MSP_REPORT_PAGE_COLUMNS_H
#define MSP_REPORT_PAGE_COLUMNS_H

#include "report/write/page.h"

/* What is known of a column by its title. */
typedef enum msp_page_role {
    PAGE_ROLE_VALUE = 0,
    PAGE_ROLE_NAME,
    PAGE_ROLE_BENCH_NAME,
    PAGE_ROLE_DTYPE,
    PAGE_ROLE_SHAPE,
    PAGE_ROLE_COSINE,
    PAGE_ROLE_EUC,
    PAGE_ROLE_MAX_ABS,
    PAGE_ROLE_DIFF,                     /* four */
    PAGE_ROLE_REL = PAGE_ROLE_DIFF + 4, /* of statistics, as percent */
    PAGE_ROLE_STAT = PAGE_ROLE_REL + 4,
    PAGE_ROLE_BENCH_STAT = PAGE_ROLE_STAT + 4,
    PAGE_ROLE_MD5 = PAGE_ROLE_BENCH_STAT + 4,
    PAGE_ROLE_BENCH_MD5,
    PAGE_ROLE_VERDICT,
    PAGE_ROLE_LEFT_OUT, /* told in another way */
    PAGE_NROLES
} msp_page_role;

/* Which column has the role; -1: the table has no such column. */
typedef struct msp_page_roles {
    int column[PAGE_NROLES];
} msp_page_roles;

msp_page_role msp_page_role_of(const char *title);

/* NULL: there is no such column. */
const msp_cell *msp_page_cell(const msp_page_roles *roles, const msp_cell *cells, msp_page_role r);

/* "" for what is no text. */
msp_str msp_page_cell_text(const msp_cell *c);

/* NaN or infinite on one side only. */
bool msp_page_row_nonfinite(const msp_page_roles *roles, const msp_cell *cells);

/*
 * How far a row is off, whatever its scale: the distance of the tensors over the bench's norm; for statistics the
 * largest difference over the largest bench value. -1: nothing was measured; infinite: NaN or inf on one side.
 */
float msp_page_row_error(const msp_page_roles *roles, const msp_cell *cells, bool nonfinite);

/* By the manual's limits, as the row's own cell says it. */
msp_page_verdict msp_page_row_verdict(const msp_page_roles *roles, const msp_cell *cells, bool nonfinite);

/*
 * A tensor by what is recorded of it: type, shape and statistics, or its checksum. 0: nothing to know it by. A tensor
 * of zeros, or of one value, is like too many others.
 */
uint64_t msp_page_row_fingerprint(const msp_page_roles *roles, const msp_cell *cells);

#endif
